"""Bad input to any command: one line with what is wrong, exit code 2, and nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from commeff.experiments.cli import main

GRID = "base: {task: quadratic, workers: 2, steps: 2}\ngrid:\n  - {method: psgd}\n"
FILES = {
    "grid.yaml": GRID,
    "plain.py": "x = 1\n",
    "broken.py": "def broken(:\n",
    "exits.py": "import sys\nsys.exit(0)\n",
    "leaves.py": "import os\nos._exit(0)\n",
    "interrupts.py": "raise KeyboardInterrupt\n",
    "generator.py": "raise GeneratorExit\n",
    "own.py": "class Own(BaseException):\n    pass\n\n\nraise Own('mine')\n",
    "quits.py": (
        "import sys\nfrom commeff.core.strategy import Strategy\n\n\n"
        "def quits(optimizer) -> Strategy:\n    print('noise')\n    sys.exit(0)\n"
    ),
    "many.yaml": "base: {task: quadratic}\nseeds: [" + ", ".join(map(str, range(201))) + "]\ngrid:\n"
    "  - {method: psgd, steps: [" + ", ".join(map(str, range(1, 151))) + "]}\n",
    "goal.yaml": GRID + "target: {val_acuracy: 0.9}\n",
    "choice.yaml": GRID + "  - {method: psgd, steps: [3, 4]}\nselect: {over: steps, by: accuracy}\n",
    "level.yaml": GRID + "target: {val_loss: true}\n",
    "place.yaml": GRID + "clusters: [nowhere]\n",
    "empty.yaml": "",
    "list.yaml": "- 1\n",
    "broken.yaml": "a: [1, 2\n",
    "deep.yaml": "[" * 3000,
    "cells.jsonl": '{"version": 2}\n',
    "none.jsonl": "",
    "levels.yaml": "gpu: " + "[" * 4000 + "]" * 4000 + "\n",
    "mute.py": "class Mute(Exception):\n    def __str__(self):\n        raise OSError\n\n\nraise Mute\n",
    "mutes.py": (
        "from commeff.core.strategy import Strategy\n\n\nclass Mute(Exception):\n    def __str__(self):\n"
        "        raise OSError\n\n\ndef mutes(optimizer) -> Strategy:\n    raise Mute\n"
    ),
    "binary.yaml": "\x00\x01",
    "notes.txt": "a file\n",
}
BAD = [  # words of a command, and what the line says; {here} is the folder with FILES
    # train
    ("train nonsense", "write key=value"),
    ("train task=", "no task ''"),
    ("train workers=", "workers must be a whole number"),
    ("train steps=1e3", "steps must be a whole number"),
    ("train seed=-1", "at least 0"),
    ("train threads=0", "at least 1"),
    ("train steps=[1,2]", "whole number"),
    ("train steps={{a:1}}", "whole number"),
    ("train l2=true", "l2 must be a number"),
    ("train device=tpu", "'cpu' or 'cuda'"),
    ("train nproc=0", "at least 1"),
    ("train method=os.system", "no method 'os.system'"),
    ("train method._target_=os.system", "unknown key 'method._target_'"),
    ("train hydra.run.dir=x", "unknown key 'hydra.run.dir'"),
    ("train data_dir=3", "data_dir must be"),
    ("train --plugin {here}/absent.py", "no plug-in file"),
    ("train --plugin {here}/notes.txt", "cannot be loaded"),
    ("train --plugin no.such.module", "a plug-in is a file that ends in .py"),
    ("train --plugin {here}/exits.py", "SystemExit: 0 (line 2 of {here}/exits.py)"),
    ("train --plugin {here}/leaves.py", "SystemExit: 0 (line 2 of {here}/leaves.py)"),
    ("train --plugin {here}/interrupts.py", "KeyboardInterrupt (line 1 of {here}/interrupts.py)"),
    ("train --plugin {here}/generator.py", "GeneratorExit (line 1 of {here}/generator.py)"),
    ("train --plugin {here}/own.py", "Own: mine (line 5 of {here}/own.py)"),
    ("train --plugin {here}/quits.py method=quits", "SystemExit: 0 (line 7 of {here}/quits.py)"),
    ("train --plugin {here}/mute.py", "Mute (line 6 of {here}/mute.py): a plug-in must raise errors that"),
    ("train --plugin {here}/mutes.py method=mutes", "Mute (line 10 of {here}/mutes.py)"),
    ("train --store {here}/notes.txt steps=1 task=quadratic", "notes.txt"),
    ("train --stroe x", "No such option: --stroe"),
    ("train workers=1000000000", "workers must be at least 1 and at most 100,000"),
    ("train nproc=5000 workers=6000", "nproc must be at least 1 and at most 4,096"),
    ("train threads=5000", "threads must be at least 1 and at most 1,024"),
    # grid
    ("grid", "Missing argument 'FILE'"),
    ("grid {here}/absent.yaml", "absent.yaml"),
    ("grid {here}", "{here}"),
    ("grid {here}/empty.yaml --dry-run", "empty.yaml"),
    ("grid {here}/list.yaml --dry-run", "list.yaml"),
    ("grid {here}/broken.yaml --dry-run", "broken.yaml"),
    ("grid {here}/binary.yaml --dry-run", "binary.yaml"),
    ("grid {here}/cells.jsonl --collect", "is damaged"),
    ("grid {here}/none.jsonl --collect", "is empty"),
    ("grid /dev/zero", "grid file /dev/zero cannot be read: is no regular file"),
    ("grid {here}/pipe", "grid file {here}/pipe cannot be read: is no regular file"),
    ("grid {here}/grid.yaml --launcher sbatch --emit {here}/jobs --site /dev/zero", "is no regular file"),
    ("grid {here}/grid.yaml --launcher ssh", "ssh"),
    ("grid {here}/grid.yaml --dry-run --shard 0/2", "--shard must be i/n"),
    ("grid {here}/grid.yaml --dry-run -j 0", "-j must be at least 1"),
    ("grid {here}/grid.yaml --dry-run --timeout=-1", "--timeout must be seconds"),
    ("grid {here}/grid.yaml --dry-run --max-failures=-1", "--max-failures must be at least 0"),
    ("grid {here}/grid.yaml --dry-run --only method=dsgd", "keeps no cell"),
    ("grid {here}/grid.yaml --dry-run stpes=3", "did you mean steps?"),
    ("grid {here}/grid.yaml --plugin {here}/exits.py", "SystemExit: 0"),
    ("grid {here}/grid.yaml --jobs many", "'--jobs'"),
    ("grid {here}/grid.yaml -j 100000", "-j must be at least 1 and at most 1024"),
    ("grid {here}/grid.yaml --max-cells 2000000", "'--max-cells'"),
    ("grid {here}/many.yaml --dry-run", "--max-cells"),
    ("grid {here}/many.yaml --dry-run --max-cells 20000", "--max-cells"),
    ("grid {here}/goal.yaml --dry-run", "target: no run of the grid measures val_acuracy"),
    ("grid {here}/choice.yaml --dry-run", "select.by must be one of val_accuracy, val_loss, train_loss, suboptimality"),
    ("grid {here}/level.yaml --dry-run", "target"),
    ("grid {here}/place.yaml --dry-run", "nowhere"),
    # report, status
    ("report {here}/absent", "there is no store"),
    ("report {here}/notes.txt", "got the file"),
    ("report {here}/stored --grid nope", "holds no grid 'nope'"),
    ("report {here}/stored --baseline psgd", "--baseline must be key=value"),
    ("report {here}/stored --columns seeds,payload_byte", "did you mean payload_bytes"),
    ("report {here}/stored --style {here}/absent.yaml", "--style must be lecture, paper or a file"),
    ("report {here}/stored --target low", "'--target'"),
    ("report {here}/stored --cluster nowhere", "nowhere"),
    ("report {here}/stored --cluster {here}/levels.yaml", "nested too deeply"),
    ("report {here}/nothing", "nothing holds no runs"),
    ("report {here}/stored --target nan", "--target must be a level"),
    ("report {here}/stored --cluster v100_25g --step-seconds nan", "step_seconds must be at least 0, got nan"),
    ("report {here}/stored --cluster v100_25g --efficiency 0", "efficiency must lie in (0, 1], got 0"),
    ("status {here}/absent", "no store"),
    ("status {here}/notes.txt", "no store"),
    ("status a b", "unexpected extra argument"),
    # list, show, check
    ("list nope", "no group 'nope'"),
    ("list --plugin {here}/own.py", "Own: mine"),
    ("show method=chocco", "did you mean choco?"),
    ("show --plugin {here}/interrupts.py", "KeyboardInterrupt"),
    ("show --jsn", "No such option"),
    ("check", "Missing argument"),
    ("check {here}/absent.py", "no plug-in file"),
    ("check {here}/plain.py", "adds nothing"),
    ("check {here}/broken.py", "SyntaxError"),
    ("check {here}/exits.py", "SystemExit: 0 (line 2"),
    ("check {here}/generator.py", "GeneratorExit"),
    ("check {here}/quits.py:quit", "did you mean quits?"),
    # exercise
    ("exercise new efsgd", "did you mean ef_sgd?"),
    ("exercise grade {here}/absent.py", "No such file"),
    ("exercise grade {here}/notes.txt", "must end in .py"),
    ("exercise grade {here}/broken.py", "is no Python: line 1"),
    ("exercise grade {here}/plain.py", "function of one exercise, got none"),
    # plan, scale
    ("plan model=gpt5", "gpt5"),
    ("plan model=gpt3-13b gpus=0", "GPUs on a100_selene must be"),
    ("plan model=gpt3-13b cluster=nowhere", "nowhere"),
    ("plan model=gpt3-13b cluster={here}/broken.yaml", "broken.yaml"),
    ("plan model=gpt3-13b cluster={here}/levels.yaml", "nested too deeply"),
    ("plan model=gpt3-13b gpus=7 tensor=2", "7"),
    ("plan model=gpt3-13b tensr=2", "did you mean tensor?"),
    ("plan model=gpt3-13b --search --largest", "at most one of"),
    ("plan model=gpt3-13b --method bayes", "must be left out without --search"),
    ("plan model=gpt3-13b --timeline {here}/x.doc", "must end with one of"),
    ("plan --plugin {here}/exits.py", "SystemExit: 0"),
    ("scale --workload resnet", "resnet"),
    ("scale --worker rack", "rack"),
    ("scale --cluster nowhere", "nowhere"),
    ("scale --workers 200000", "--workers must be 1 to 100,000, got 200,000"),
    ("scale --workers 0", "--workers must be 1 to 100,000"),
    ("scale method=nope", "no method 'nope'"),
    # data, bench, lab
    ("data prepare nope --from {here}", "nope"),
    ("data prepare cifar10 --from {here}/absent.tar.gz", "no file or folder"),
    ("data verify --data-dir {here}/absent", "no folder"),
    ("data partition task=quadratic", "no labelled samples"),
    ("bench comm --nproc 1", "at least 2"),
    ("bench comm --nproc 100000", "at most 256"),
    ("bench nope", "No such command 'nope'"),
    ("lab report {here}/absent", "absent"),
    ("lab bench --rounds 1000000", "'--rounds'"),
    ("lab run {here}/grid.yaml --networks 3mbit", "3mbit"),
    ("nope", "No such command 'nope'"),
]


def make(folder: Path) -> None:
    """The files, an empty folder, and a store with the folder of a run."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "nothing").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "stored" / "run").mkdir(parents=True)
    (folder / "stored" / "run" / "status.json").write_text("{}")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    make(folder)
    return folder


def files_below(folder: Path) -> list[Path]:
    """All but what Python itself writes where it may keep bytecode."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


@pytest.mark.parametrize(("words", "says"), BAD, ids=[words for words, _ in BAD])
def test_a_bad_input_is_one_line_and_writes_nothing(
    words: str,
    says: str,
    here: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = files_below(here)
    with pytest.raises(SystemExit) as end:
        main([word.format(here=here) for word in words.split()])
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line != "noise"]
    assert end.value.code == 2, err
    assert len(lines) == 1, err
    assert lines[0].startswith("commeff: ")
    assert says.format(here=here) in lines[0]
    assert out == ""
    assert [*tmp_path.iterdir()] == []
    assert files_below(here) == before
