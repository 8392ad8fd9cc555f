"""What is wrong with a command is said before torch is imported, which may take many seconds: counted by modules."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import pytest
import yaml

from commeff.experiments.config.compose import compose
from commeff.experiments.config.registry import split
from commeff.experiments.config.schema import GROUPS, built_in, node, words
from commeff.experiments.config.signature import parameters
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.reading import CHARACTERS, KEYS, Bounded, TooLargeError
from commeff.experiments.run.runner import run_one
from tests.experiments.cli.test_bad_inputs import BAD, make
from tests.owned import run

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "networkx")
GOOD = (
    *("--help", "list", "list method", "list optimizer", "list schedule", "reproduce --list"),
    *("show", "show method=choco", "show topology=ring", "show optimizer=nesterov", "show schedule=cosine"),
    *("show task=digits", "show task=language", "show compressor=qsgd", "show optimizer=lion"),
)
ALSO = (  # mistakes beside those of test_bad_inputs
    "train nonsense=1",
    "train optimizer.lr=big compressor.ratio=much method=mem_sgd",
    "grid grid.yaml task.batch=many --dry-run",
    "grid grid.yaml --store notes.txt stpes=3",
    "report stored --cluster nowhere",
    "report stored --out notes.txt",
    "scale --out notes.txt",
    "bench step --csv .",
    "bench comm --profile notes.txt/x.yaml",
    "plan --timeline notes.txt/x.pdf",
    "plan model=gpt3-13b --search zero=1",
    "plan model=gpt3-13b --search --method genetic",
    "plan model=gpt3-13b layers=7 pipeline=2 gpus=2",
    "plan model=gpt3-13b method=choco compressor=top_k compressor.rtio=0.1",
    "lab bench --csv .",
    "lab run absent.yaml",
    "data partition task=nope",
    "data partition --figure notes.txt/x.pdf",
    "data partition --figure x.bmp",
    "data tokenize absent.txt --to tokens",
    "data partition task=digits --figure x",
    "reproduce nowhere",
    "reproduce bias_floors --scale huge",
    "reproduce bias_floors steps=3",
)
WARM = {  # mistakes that only those see who import what the words name
    "train --plugin {here}/quits.py method=quits": "a plug-in's own code ends the process",
    "train --plugin {here}/mutes.py method=mutes": "a plug-in's own code raises",
    "check {here}/plain.py": "what kinds of parts a file could have had",
    "check {here}/quits.py:quit": "what a file has",
    "data partition task=quadratic": "whether a task has labels",
    "report {here}/stored --columns seeds,payload_byte": "what the runs of a store have measured",
}
RUN = """
import contextlib, io, json, sys
from commeff.experiments.cli import main

found = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words.split())
        except SystemExit as end:
            found.append([end.code, err.getvalue(), [name for name in json.loads(sys.argv[2]) if name in sys.modules]])
print(json.dumps(found))
"""


def test_a_mistake_is_said_before_anything_slow_is_imported(tmp_path: Path) -> None:
    """One process after the other commands: the first that imports a library is the one that is named."""
    make(tmp_path)
    assert {*WARM} < {words for words, _ in BAD}
    wrong = [*ALSO, *(words.format(here=tmp_path) for words, _ in BAD if words not in WARM)]
    words = json.dumps([*GOOD, *wrong])
    ended = run([sys.executable, "-c", RUN, words, json.dumps(HEAVY)], cwd=tmp_path, check=True)
    for command, (code, said, imported) in zip([*GOOD, *wrong], json.loads(ended.stdout), strict=True):
        assert (command, imported) == (command, [])
        assert (command, code) == (command, 2 if command in wrong else 0), said
        assert command in GOOD or all(line.startswith("commeff: ") for line in (said or "?").splitlines()), said


def test_a_finished_run_is_read_before_anything_slow_is_imported(tmp_path: Path) -> None:
    config = compose(["task=quadratic", "steps=2", "workers=2"])
    run_one(config, tmp_path / "runs" / run_id(config))
    asked = json.dumps(["train task=quadratic steps=2 workers=2"]), json.dumps(HEAVY)
    ended = run([sys.executable, "-c", RUN, *asked], cwd=tmp_path, check=True)
    ((code, said, imported),) = json.loads(ended.stdout)
    assert (code, imported) == (0, [])
    assert "is finished already" in said


PARTS = (  # mistakes that a part sees, which torch must be there for
    "train task=digits method=mem_sgd compressor=top_k compressor.ratio=2",
    "train task=digits method=local_sgd method.period=0",
    "train task=digits method=dsgd topology=torus workers=7",
    "train task=digits optimizer.lr=-1",
    "train task=digits task.hidden=0",
    "train task=language data_dir={data} mesh.worker=2 mesh.tensor=3",
    "train task=language data_dir={data} mesh.worker=2 mesh.pipeline=9",
    "train task=language data_dir={data} task.context=64 task.model=llama_1m task.width=7",
)


def test_a_mistake_in_a_part_is_said_before_data_and_compilers_are_imported(tmp_path: Path) -> None:
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare/input.txt").write_text("To be, or not to be. " * 4000)
    words = [each.format(data=tmp_path) for each in PARTS]
    slow = (
        "torch._dynamo",
        "torch.distributed.fsdp",
        "torch.distributed.checkpoint",
        "sklearn",
        "pandas",
        "matplotlib",
    )
    asked = json.dumps(words), json.dumps(slow)
    ended = run([sys.executable, "-c", RUN, *asked], cwd=tmp_path, check=True)
    for command, (code, said, imported) in zip(words, json.loads(ended.stdout), strict=True):
        assert (command, code, imported) == (command, 2, []), said


LOOK = """
import json, sys
from commeff.experiments.config.signature import UNSAID, written, written_docstrings
from commeff.experiments.config.schema import words

found = []
for module, name, keys in json.loads(sys.argv[1]):
    own = written(module, name) or {}
    hints = {key: own[key].annotation for key in keys if key in own}
    first = "".join(written_docstrings(f"{module}.{name}")[:1]).partition(chr(10))[0]
    found.append([first, {key: words(h) for key, h in hints.items() if h is not UNSAID}])
assert "torch" not in sys.modules
print(json.dumps(found))
"""


def test_what_the_source_says_is_what_the_function_says() -> None:
    """Annotations in words, and first lines of docstrings, of all parts; most of them are found without importing."""
    from commeff.experiments.config.registry import locate

    nodes = [node(group, name) for group in GROUPS for name in built_in(group)]
    keys = [[key for key in each if key[0] != "_"] for each in nodes]
    targets = [each["_target_"] for each in nodes]
    asked = json.dumps([[*split(target), own] for target, own in zip(targets, keys, strict=True)])
    text = run([sys.executable, "-c", LOOK, asked], check=True).stdout
    count = 0
    for target, (first, hints) in zip(targets, json.loads(text), strict=True):
        value = locate(target)
        assert first in ("", (inspect.getdoc(value) or "").partition("\n")[0]), target
        for key, words_of in hints.items():
            assert (target, key, words_of) == (target, key, words(parameters(value)[key].annotation))
            count += 1
    assert count > 0.6 * sum(map(len, keys))


LAUGHS = "c0: &c0 [1, 2]\n" + "".join(f"c{i}: &c{i} [{f'*c{i - 1}, ' * 9}]\n" for i in range(1, 9))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LAUGHS, "200,000 values"),
        ("base: {" + ", ".join(f"k{i}: 1" for i in range(1001)) + "}", "1,000 keys"),
        ("a: " + "[" * 29 + "1" + "]" * 29, "30 deep"),
        ("a: &a [*a]", "holds itself"),
        ("#" * 1_000_001, "1,000,000 characters"),
    ],
)
def test_grid_files_have_limits_that_are_said(text: str, says: str, tmp_path: Path) -> None:
    from commeff.experiments.config.schema import ConfigError
    from commeff.experiments.grid.plan.spec import read_grid

    (tmp_path / "large.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_grid(tmp_path / "large.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 28 + "1" + "]" * 28,
        "{" + ", ".join(f"k{i}: 1" for i in range(KEYS)) + "}",
        "a: &a [1, 2]\nb: [*a, *a]\n",
        "#" * CHARACTERS,
        f"a: &a [{', '.join('1' * 1000)}]\nb: [{', '.join(['*a'] * 197)}]\n",
    ],
)
def test_what_is_within_the_limits_is_read(text: str) -> None:
    yaml.load(text, Bounded)


def test_more_values_than_there_may_be_are_counted_with_every_alias() -> None:
    text = f"a: &a [{', '.join('1' * 1000)}]\nb: [{', '.join(['*a'] * 199)}]\n"
    with pytest.raises(TooLargeError, match="200,000 values"):
        yaml.load(text, Bounded)
