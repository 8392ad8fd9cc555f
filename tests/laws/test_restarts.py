"""Under torchrun: whoever is killed, and whenever, the run ends with the parameters of an undisturbed one.

And checkpoints that a disk has damaged: the one before them is taken, or the run is refused; nothing is lost silently.
"""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import adopt
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import RunFolder
from commeff.training.checkpoint import Checkpoints
from commeff.training.recorder import Recorder
from tests.experiments.run.launchers import checkpointed, children, gone, torchrun
from tests.laws.test_resume import same
from tests.owned import PATIENCE

FRAGILE = str(Path(__file__).parents[1] / "plugins" / "fragile.py")
STEPS = 120
TIMES = ("seconds", "exposed", "exposed_seconds")
WORDS = ["task=fragile", "task.sigma=1.0", "workers=4", "method=choco", "topology=ring", "optimizer=nesterov"]
WORDS += [f"steps={STEPS}", "evaluate_every=20", "checkpoint_every=7", "nproc=2"]


def left(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Everything a run leaves behind, but for the seconds it took."""
    rows = [{key: value for key, value in row.items() if key not in TIMES} for row in Recorder(folder).rows()]
    state = Checkpoints(folder / "checkpoints").load()
    assert state is not None
    return rows, {key: value for key, value in state.items() if key not in (*TIMES, "row")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run, on two processes of its own."""
    folder = tmp_path_factory.mktemp("whole")
    choices, _ = adopt([FRAGILE])
    assert run_one(compose(WORDS, choices), folder)["state"] == "done"
    return folder


@pytest.mark.parametrize("crashes", [[1], pytest.param([1, 2] * 10, marks=pytest.mark.slow)], ids=["one", "twenty"])
def test_crashes_under_torchrun_change_nothing(
    crashes: list[int], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(len(crashes))
    for number, count in enumerate(crashes):
        bombs, store = tmp_path / f"bombs{number}", tmp_path / f"store{number}"
        bombs.mkdir()
        for step in chance.sample(range(STEPS), count):
            (bombs / f"{step}-{chance.randrange(4)}").touch()
        monkeypatch.setenv("FRAGILE", str(bombs))
        job = torchrun(2, store, [*WORDS, "--plugin", FRAGILE], restarts=count)
        try:
            _, said = job.communicate(timeout=PATIENCE)
        finally:
            job.kill()
        assert job.returncode == 0, said
        assert not list(bombs.iterdir()), "a crash did not happen"
        (folder,) = store.iterdir()
        same(left(folder), left(whole))
        assert re.search(r"commeff: process \d on \S+ \(pid \d+\) is gone", said)
        assert RunFolder(folder).read("env.json")["restarts"] == count
        for facts in RunFolder(folder).read("env.json")["members"]:
            assert gone([facts["pid"]])


SLOW = [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGKILL)]


@pytest.mark.parametrize("number", [signal.SIGINT, *SLOW])
def test_nobody_outlives_torchrun(number: signal.Signals, tmp_path: Path) -> None:
    words = ["task=quadratic", "workers=4", "steps=1000000", "checkpoint_every=1000"]
    job = torchrun(2, tmp_path, words)
    try:
        folder = checkpointed(tmp_path)
        members = children(job.pid)
        assert len(members) == 2
        job.send_signal(number)
        job.communicate(timeout=PATIENCE)
    finally:
        job.kill()
    assert gone(members)
    assert RunFolder(folder).state == "killed"
    state = Checkpoints(folder / "checkpoints").load()
    assert state is not None
    assert state["step"] == RunFolder(folder).read("status.json")["step"]  # it stopped, and was not killed


@pytest.mark.slow
def test_a_member_killed_under_torchrun_is_named(tmp_path: Path) -> None:
    job = torchrun(2, tmp_path, ["task=quadratic", "workers=4", "steps=1000000", "checkpoint_every=1000"])
    try:
        checkpointed(tmp_path)
        victim = children(job.pid)[1]
        os.kill(victim, signal.SIGKILL)
        _, said = job.communicate(timeout=PATIENCE)
    finally:
        job.kill()
    assert job.returncode == 1
    ours = [line for line in said.splitlines() if line.startswith("commeff: ")]
    assert len(ours) == 1
    assert re.search(rf"process \d on \S+ \(pid {victim}\) is gone", ours[0])


def stopped(folder: Path) -> dict[str, Any]:
    """A run that has been stopped at step 7, with checkpoints at 6 and 7."""
    config = compose(["task=quadratic", "workers=2", "steps=12", "evaluate_every=1", "checkpoint_every=2"])

    def interrupt(step: int, row: dict[str, Any]) -> None:
        if step == 7:
            signal.raise_signal(signal.SIGINT)

    assert run_one(config, folder, interrupt)["state"] == "killed"
    return config


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"strategy") + 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_a_damaged_checkpoint_costs_the_steps_since_the_one_before(
    damage: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = stopped(tmp_path / "run")
    damage(tmp_path / "run" / "checkpoints" / "latest.pt")
    run_one(config, tmp_path / "run")
    run_one(config, tmp_path / "whole")
    same(left(tmp_path / "run"), left(tmp_path / "whole"))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (damage is not Path.unlink)
    assert all("latest.pt cannot be read" in line and "going on from previous.pt" in line for line in said)


def test_two_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    config = stopped(tmp_path)
    for name in ("latest.pt", "previous.pt"):
        flip(tmp_path / "checkpoints" / name)
    with pytest.raises(ConfigError, match=r"latest\.pt cannot be read .* and .*previous\.pt cannot be read .*; delete"):
        run_one(config, tmp_path)
    assert RunFolder(tmp_path).state == "killed"
