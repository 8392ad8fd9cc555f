"""Whatever is killed, and whenever: the same command again ends with the store of an undisturbed run.

`make kills KILLS=60` kills so often: a third of it cells and runners of a grid, a third processes of a run and the
command that started them, a third members of torchrun and torchrun itself.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import RunFolder
from tests.experiments.run.launchers import children, torchrun
from tests.forks import command
from tests.owned import PATIENCE, alive, until

KILLS = int(os.environ.get("COMMEFF_KILLS", "30"))  # of the slow laws together
WORDS = ["task=quadratic", "task.sigma=1.0", "workers=4", "method=choco", "topology=ring", "optimizer=nesterov"]
WORDS += ["steps=1500", "evaluate_every=100", "checkpoint_every=50"]
GRID = """
base: {task: digits, workers: 4, steps: %d, evaluate_every: 20, checkpoint_every: 210}
seeds: %s
grid:
  - {method: mem_sgd, compressor: top_k}
  - {method: dsgd, topology: one_peer_exponential, optimizer: nesterov}
"""


def begin(folder: Path) -> subprocess.Popen[str]:
    words = ["grid", str(folder / "mine.yaml"), "--store", str(folder / "store"), "-j", "2", "--no-report"]
    return command(words, stderr=DEVNULL)


def running(folder: Path) -> list[RunFolder]:
    runs = [RunFolder(path.parent) for path in (folder / "store").glob("*/status.json")]
    return [run for run in runs if run.state == "running"]


def underway(folder: Path, runner: subprocess.Popen[str]) -> bool:
    return bool(running(folder)) or runner.poll() is not None


def content(folder: Path) -> dict[str, Any]:
    """What a run decided: seconds are the machine's."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    texts = {"config": (folder / "config.yaml").read_text(), "files": sorted(path.name for path in folder.iterdir())}
    return texts | {"rows": [row | {"seconds": 0} for row in rows], "summary": summary | {"seconds": 0}}


@pytest.mark.parametrize(
    ("kills", "steps", "seeds"), [(3, 600, [0]), pytest.param(KILLS // 3, 6000, [0, 1], marks=pytest.mark.slow)]
)
def test_kills_change_nothing(kills: int, steps: int, seeds: list[int], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GRID % (steps, seeds))
    chance = random.Random(kills)
    runner = begin(tmp_path)
    for kill in range(kills):
        until(partial(underway, tmp_path, runner), "a cell")
        time.sleep(chance.uniform(0.2, 1.0))
        targets = running(tmp_path)
        if targets and kill % 3 != 0:
            os.kill(chance.choice(targets).read("status.json")["pid"], signal.SIGKILL)
        if kill % 3 != 1 or runner.poll() is not None:
            runner.kill()
            runner.wait()
            runner = begin(tmp_path)
    assert runner.wait(timeout=PATIENCE) in (0, 1)
    assert begin(tmp_path).wait(timeout=PATIENCE) == 0
    described = json.loads((tmp_path / "store" / "grids" / "mine.json").read_text())
    assert len(described["cells"]) == 2 * len(seeds)
    for cell in described["cells"]:
        run_one(compose(cell["settings"]), tmp_path / "whole" / cell["run"])
        assert content(tmp_path / "store" / cell["run"]) == content(tmp_path / "whole" / cell["run"])


def own_processes(store: Path) -> subprocess.Popen[str]:
    return command(["train", *WORDS, "nproc=2", "--store", str(store)], stderr=DEVNULL, stdout=DEVNULL)


def under_torchrun(store: Path) -> subprocess.Popen[str]:
    return torchrun(2, store, WORDS, stdout=DEVNULL, stderr=DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("begin", [own_processes, under_torchrun])
def test_kills_of_processes_change_nothing(begin: Callable[[Path], subprocess.Popen[str]], tmp_path: Path) -> None:
    """Each kill comes at a random moment after a checkpoint was written; after a run that is done, another begins."""
    chance, ended = random.Random(KILLS), list[Path]()
    run_one(compose([*WORDS, "nproc=2"]), tmp_path / "whole")
    store, job = tmp_path / "0", begin(tmp_path / "0")
    kills = KILLS // 3
    while True:
        before = checkpoint(store)
        until(partial(further, store, before, job), "a new checkpoint")
        time.sleep(chance.uniform(0.0, 0.3))
        members = children(job.pid)
        if kills and job.poll() is None and members:
            os.kill(chance.choice([job.pid, *members]), signal.SIGKILL)
            kills -= 1
        elif job.poll() is None and kills:
            continue
        job.wait(timeout=PATIENCE)
        until(partial(all_gone, members), "the other processes")
        if job.returncode == 0:
            ended.append(store)
            if not kills:
                break
            store = tmp_path / str(len(ended))
        job = begin(store)
    for store in ended:
        (run,) = store.iterdir()
        assert without_seconds(run) == without_seconds(tmp_path / "whole")


def checkpoint(store: Path) -> int:
    return max((path.stat().st_mtime_ns for path in store.glob("*/checkpoints/latest.pt")), default=0)


def further(store: Path, before: int, job: subprocess.Popen[str]) -> bool:
    return checkpoint(store) > before or job.poll() is not None


def all_gone(pids: list[int]) -> bool:
    return not any(map(alive, pids))


def without_seconds(folder: Path) -> list[Any]:
    """Rows and summary but for what the machine decided."""
    found = content(folder)
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in (*found["rows"], found["summary"])]
