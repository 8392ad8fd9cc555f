"""What is wrong with a command is said before torch is imported, which may take many seconds: counted by modules."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from commeff.experiments.config.schema import GROUPS, built_in, node, parameters, words
from commeff.experiments.config.targets import split
from tests.experiments.test_bad_inputs import FILES
from tests.owned import run

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "networkx")
COLD = (  # commands, and their exit codes
    ("--help", 0),
    ("list", 0),
    ("list method", 0),
    ("list nope", 2),
    ("train nonsense", 2),
    ("train nonsense=1", 2),
    ("train method=nope", 2),
    ("train optimizer.lr=big compressor.ratio=much method=mem_sgd", 2),
    ("train workers=1000000000", 2),
    ("train --plugin absent.py", 2),
    ("train --stroe x", 2),
    ("show method=nope", 2),
    ("grid absent.yaml", 2),
    ("grid empty.yaml", 2),
    ("grid grid.yaml stpes=3", 2),
    ("grid grid.yaml task.batch=many --dry-run", 2),
    ("grid grid.yaml -j 100000", 2),
    ("grid grid.yaml --store notes.txt stpes=3", 2),
    ("report absent", 2),
    ("report . --cluster nowhere", 2),
    ("report . --out notes.txt", 2),
    ("report . --baseline psgd", 2),
    ("status absent", 2),
    ("check absent.py", 2),
    ("scale method=nope", 2),
    ("scale --out notes.txt", 2),
    ("bench step --csv .", 2),
    ("bench comm --nproc 100000", 2),
    ("bench comm --profile notes.txt/x.yaml", 2),
    ("plan --timeline notes.txt/x.pdf", 2),
    ("lab bench --csv .", 2),
    ("lab run absent.yaml", 2),
    ("lab report absent", 2),
    ("data verify", 2),
    ("data partition task=nope", 2),
    ("data partition --figure notes.txt/x.pdf", 2),
    ("nope", 2),
)
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
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    commands = json.dumps([command for command, _ in COLD])
    ended = run([sys.executable, "-c", RUN, commands, json.dumps(HEAVY)], cwd=tmp_path, check=True)
    for (command, code), (found, said, imported) in zip(COLD, json.loads(ended.stdout), strict=True):
        assert (command, imported) == (command, [])
        assert (command, found) == (command, code), said
        assert code == 0 or (said and all(line.startswith("commeff: ") for line in said.splitlines())), said


LOOK = """
import json, sys
from commeff.experiments.config.written import written_annotation, written_summary
from commeff.experiments.config.schema import words

found = []
for module, name, keys in json.loads(sys.argv[1]):
    hints = {key: written_annotation(module, name, key) for key in keys}
    found.append([written_summary(module, name), {key: words(h) for key, h in hints.items() if h is not None}])
assert "torch" not in sys.modules
print(json.dumps(found))
"""


def test_what_the_source_says_is_what_the_function_says() -> None:
    """Annotations in words, and first lines of docstrings, of all parts; most of them are found without importing."""
    from commeff.experiments.config.describe import summary
    from commeff.experiments.config.registry import locate

    nodes = [node(group, name) for group in GROUPS for name in built_in(group)]
    keys = [[key for key in each if key[0] != "_" and key != "defaults"] for each in nodes]
    targets = [each["_target_"] for each in nodes]
    asked = json.dumps([[*split(target), own] for target, own in zip(targets, keys, strict=True)])
    text = run([sys.executable, "-c", LOOK, asked], check=True).stdout
    count = 0
    for target, (first, hints) in zip(targets, json.loads(text), strict=True):
        value = locate(target)
        assert first in ("", summary(value)), target
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
        ("a: " + "[" * 31 + "1" + "]" * 31, "30 deep"),
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
