"""Whatever is killed, and whenever: the same command again ends with the store of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import RunFolder
from tests.forks import command

GRID = """
base: {task: digits, workers: 4, steps: %d, evaluate_every: 20, checkpoint_every: 210}
seeds: [0, 1]
grid:
  - {method: mem_sgd, compressor: top_k}
  - {method: dsgd, topology: one_peer_exponential, optimizer: nesterov}
"""


def begin(folder: Path) -> subprocess.Popen[str]:
    words = ["grid", str(folder / "mine.yaml"), "--store", str(folder / "store"), "-j", "2", "--no-report"]
    return command(words, stderr=subprocess.DEVNULL)


def running(folder: Path) -> list[RunFolder]:
    runs = [RunFolder(path.parent) for path in (folder / "store").glob("*/status.json")]
    return [run for run in runs if run.state == "running"]


def content(folder: Path) -> dict[str, Any]:
    """What a run decided: seconds are the machine's."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    texts = {"config": (folder / "config.yaml").read_text(), "files": sorted(path.name for path in folder.iterdir())}
    return texts | {"rows": [row | {"seconds": 0} for row in rows], "summary": summary | {"seconds": 0}}


@pytest.mark.parametrize(("kills", "steps"), [(3, 600), pytest.param(20, 6000, marks=pytest.mark.slow)])
def test_kills_change_nothing(kills: int, steps: int, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GRID % steps)
    chance = random.Random(kills)
    runner = begin(tmp_path)
    for kill in range(kills):
        deadline = time.monotonic() + 120
        while not running(tmp_path) and runner.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(chance.uniform(0.2, 1.0))
        targets = running(tmp_path)
        if targets and kill % 3 != 0:
            os.kill(chance.choice(targets).read("status.json")["pid"], signal.SIGKILL)
        if kill % 3 != 1 or runner.poll() is not None:
            runner.kill()
            runner.wait()
            runner = begin(tmp_path)
    assert runner.wait(timeout=600) in (0, 1)
    assert begin(tmp_path).wait(timeout=600) == 0
    described = json.loads((tmp_path / "store" / "grids" / "mine.json").read_text())
    assert len(described["cells"]) == 4
    for cell in described["cells"]:
        run_one(compose(cell["settings"]), tmp_path / "whole" / cell["run"])
        assert content(tmp_path / "store" / cell["run"]) == content(tmp_path / "whole" / cell["run"])
