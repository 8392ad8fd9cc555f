"""`nproc=`: one run on several processes is the run on one, also after a stop and on another number of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.progress import Stop
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import RunFolder
from commeff.training.checkpoint import Checkpoints
from tests import owned
from tests.experiments.run.launchers import checkpointed, children, gone
from tests.experiments.run.trajectories import same
from tests.forks import command

SMALL = [
    "task=digits",
    "task.dtype=float64",
    "task.norm=batch",
    "workers=4",
    "steps=8",
    "evaluate_every=4",
]
METHODS = [
    ["method=mem_sgd", "compressor.ratio=0.1"],
    ["method=double_squeeze", "compressor=scaled_sign"],
    ["method=choco", "topology=ring"],
    ["method=diloco", "method.period=3", "optimizer=adam"],
]
MODELS = ("cnn", "mlp", "mlp", "mlp")  # of digits, for each; convolutions take ten times as long


def begin(store: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    return command(["train", *words, "--store", str(store)], **options)


@pytest.mark.parametrize(("method", "model"), [*zip(METHODS, MODELS, strict=True)], ids=[words[0] for words in METHODS])
def test_processes_give_the_run_of_one(method: list[str], model: str, tmp_path: Path) -> None:
    words = [*SMALL, *method, f"model={model}"]
    run_one(compose(words), tmp_path / "one")
    run_one(compose([*words, "nproc=2"]), tmp_path / "two")
    same(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2), (2, 4)])
def test_a_run_goes_on_with_another_number_of_processes(before: int, after: int, tmp_path: Path) -> None:
    words = [*SMALL, *METHODS[1], "model=cnn", "optimizer=nesterov"]
    first, second = (compose([*words, f"nproc={n}"]) for n in (before, after))
    assert run_id(first) == run_id(second)
    run_one(compose(words), tmp_path / "whole")
    folder, stop, votes = tmp_path / "store" / run_id(first), Stop(), count()

    def three_steps(step: int, row: dict[str, Any]) -> None:
        stop.requested = before == 1 and step == 3

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("commeff.training.stop_vote.StopVote.passed", lambda vote, wish: next(votes) == 3)
        assert run_one(first, folder, three_steps, stop) == {"state": "killed", "steps": 3}
    resumed = begin(tmp_path / "store", *words, f"nproc={after}", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, told = resumed.communicate(timeout=owned.PATIENCE)
    assert told.count(f"{folder} goes on from step 3\n") == 1, told
    same(tmp_path / "whole", folder)


def test_a_process_that_dies_ends_the_run_with_one_line(tmp_path: Path) -> None:
    words = ["task=quadratic", "workers=4", "steps=1000000", "checkpoint_every=100", "nproc=3"]
    run = begin(tmp_path, *words, stderr=subprocess.PIPE)
    checkpointed(tmp_path)
    members = children(run.pid)
    assert len(members) == 3
    os.kill(members[1], signal.SIGKILL)
    _, told = run.communicate(timeout=owned.PATIENCE)
    assert run.returncode == 1
    assert "died with exit code -9" in told
    assert "Traceback" not in told
    (folder,) = tmp_path.iterdir()
    assert RunFolder(folder).state == "failed"
    assert not any(Path(f"/proc/{member}").exists() for member in members)


def test_no_process_outlives_the_run(tmp_path: Path) -> None:
    words = ["task=quadratic", "workers=4", "steps=1000000", "checkpoint_every=100", "nproc=2"]
    run = begin(tmp_path, *words, stderr=subprocess.DEVNULL)
    folder = checkpointed(tmp_path)
    members = children(run.pid)
    run.kill()
    run.wait()
    assert gone(members)
    assert not RunFolder(folder).busy


@pytest.mark.parametrize(("number", "whom"), [(signal.SIGINT, "the command"), (signal.SIGTERM, "a process of it")])
def test_a_signal_stops_all_with_a_checkpoint(number: signal.Signals, whom: str, tmp_path: Path) -> None:
    words = ["task=quadratic", "workers=4", "steps=1000000", "checkpoint_every=100", "nproc=2"]
    run = begin(tmp_path, *words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    folder = checkpointed(tmp_path)
    os.kill(run.pid if whom == "the command" else children(run.pid)[1], number)
    _, told = run.communicate(timeout=owned.PATIENCE)
    assert run.returncode == 130
    assert "with a checkpoint" in told.splitlines()[-1]
    state = Checkpoints(folder / "checkpoints").load()
    assert state is not None
    assert state["step"] == RunFolder(folder).read("status.json")["step"]


def test_what_processes_say_and_where_they_are_is_kept(tmp_path: Path) -> None:
    run_one(compose(["task=quadratic", "workers=4", "steps=4", "nproc=2"]), tmp_path)
    facts = json.loads((tmp_path / "env.json").read_text())
    assert (facts["launcher"], facts["world_size"], facts["backend"]) == ("local", 2, "gloo")
    for member in facts["members"]:
        log = (tmp_path / "logs" / f"rank{member['rank']}.log").read_text()
        assert f"process {member['rank']} of 2 on {member['host']}, pid {member['pid']}" in log


@pytest.mark.slow
def test_processes_of_several_threads_do_not_hang(tmp_path: Path) -> None:
    """OpenMP's threads do not survive a fork: they must not have been started before it."""
    words = ["task=quadratic", "task.dimension=100000", "task.dtype=float32", "workers=2", "steps=2", "threads=2"]
    words = [sys.executable, "-m", "commeff", "train", *words, "nproc=2", "--store", str(tmp_path)]
    owned.run(words, check=True, env=os.environ | {"OMP_NUM_THREADS": "2"})
