"""`nproc=`: one run on several processes is the run on one, also after a stop and on another number of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.config import compose
from experiments.runner import run_one
from experiments.store import RunFolder, run_id

SMALL = [
    "task=digits",
    "task.dtype=float64",
    "model=cnn",
    "task.norm=batch",
    "workers=4",
    "steps=8",
    "evaluate_every=2",
]
METHODS = [
    ["method=mem_sgd", "compressor.ratio=0.1"],
    ["method=double_squeeze", "compressor=scaled_sign"],
    ["method=choco", "topology=ring"],
    ["method=diloco", "method.period=3", "optimizer=adam"],
]


def command(store: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "experiments.cli", "train", *words, "--store", str(store)]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) | {"seconds": 0} for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same(mine: Path, theirs: Path) -> None:
    for one, other in zip(rows(mine), rows(theirs), strict=True):
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12)
    own, wanted = (json.loads((folder / "summary.json").read_text()) | {"seconds": 0} for folder in (mine, theirs))
    assert own.pop("state") == wanted.pop("state") == "done"
    assert own == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("method", METHODS, ids=lambda words: words[0])
def test_processes_give_the_run_of_one(method: list[str], tmp_path: Path) -> None:
    run_one(compose([*SMALL, *method]), tmp_path / "one")
    run_one(compose([*SMALL, *method, "nproc=2"]), tmp_path / "two")
    same(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 4)])
def test_a_run_goes_on_with_another_number_of_processes(before: int, after: int, tmp_path: Path) -> None:
    words = [*SMALL, *METHODS[1], "optimizer=nesterov"]
    first, second = (compose([*words, f"nproc={n}"]) for n in (before, after))
    assert run_id(first) == run_id(second)
    run_one(compose(words), tmp_path / "whole")
    halted = subprocess.Popen(
        command(tmp_path / "store", *words, f"nproc={before}", "checkpoint_every=2"), stderr=subprocess.PIPE
    )
    folder = tmp_path / "store" / run_id(first)
    deadline = time.monotonic() + 60
    while not (folder / "checkpoints" / "latest.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    halted.send_signal(signal.SIGINT)
    halted.communicate(timeout=60)
    assert run_one(second, folder)["state"] == "done"
    same(tmp_path / "whole", folder)


def test_a_process_that_dies_ends_the_run_with_one_line(tmp_path: Path) -> None:
    words = ["task=quadratic", "workers=4", "steps=1000000", "checkpoint_every=1000", "nproc=3"]
    run = subprocess.Popen(command(tmp_path, *words), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/checkpoints/latest.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    members = children(run.pid)
    assert len(members) == 3
    os.kill(members[1], signal.SIGKILL)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "died with exit code -9" in told
    assert "Traceback" not in told
    (folder,) = tmp_path.iterdir()
    assert RunFolder(folder).state == "failed"
    assert not any(Path(f"/proc/{member}").exists() for member in members)


def test_no_process_outlives_the_run(tmp_path: Path) -> None:
    words = ["task=quadratic", "workers=4", "steps=1000000", "checkpoint_every=1000", "nproc=2"]
    run = subprocess.Popen(command(tmp_path, *words), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*/checkpoints/latest.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    members = children(run.pid)
    (folder,) = tmp_path.iterdir()
    run.kill()
    run.wait()
    while any(Path(f"/proc/{member}").exists() for member in members):
        assert time.monotonic() < deadline, "a process outlived the run"
        time.sleep(0.05)
    assert not RunFolder(folder).busy


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = path.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(path.parent.name))
    return sorted(found)
