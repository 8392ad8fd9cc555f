"""One run on processes that a launcher starts: who they are, that they train together, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
import yaml

from commeff.communicator.wire.group import Store, store_in_file
from commeff.experiments.config.compose import compose
from commeff.experiments.run.launch.rendezvous import Rendezvous
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import prepare, run_one
from commeff.experiments.run.store import RunFolder
from commeff.experiments.tasks import Quadratic
from commeff.training.checkpoint import Checkpoints
from commeff.training.run import Run
from commeff.training.run_state import read_state
from tests.experiments.run.launchers import Srun, checkpointed
from tests.experiments.run.trajectories import rows, same
from tests.owned import PATIENCE, until

WORDS = [
    "task=quadratic",
    "task.sigma=1.0",
    "workers=4",
    "method=mem_sgd",
    "optimizer=nesterov",
    "compressor.ratio=0.3",
]
SHORT = [*WORDS, "steps=12", "evaluate_every=2"]
LONG = [*WORDS, "steps=1000000", "checkpoint_every=20"]


@pytest.fixture(scope="module", autouse=True)
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process; what it imports, forks need not."""
    folder = tmp_path_factory.mktemp("whole")
    run_one(compose(SHORT), folder)
    return folder


@pytest.fixture
def jobs() -> Iterator[ExitStack]:
    """Whoever is left when a test ends is killed."""
    with ExitStack() as stack:
        yield stack


def test_members_train_together_and_rank_0_alone_speaks(whole: Path, jobs: ExitStack, tmp_path: Path) -> None:
    job = jobs.enter_context(Srun(3, tmp_path, SHORT, environment={"NCCL_DEBUG": "WARN"}))
    assert job.codes() == [0, 0, 0]
    summary = job.summary()
    folder = Path(summary["run"])
    assert folder.name == run_id(compose(SHORT))
    same(folder, whole)
    assert summary["state"] == RunFolder(folder).read("summary.json")["state"] == "done"
    assert len(rows(folder)) == 6
    assert yaml.safe_load((folder / "config.yaml").read_text())["nproc"] == 3
    facts = json.loads((folder / "env.json").read_text())
    assert (facts["launcher"], facts["world_size"], facts["backend"], facts["restarts"]) == ("srun", 3, "gloo", 0)
    assert [member["pid"] for member in facts["members"]] == job.pids
    assert facts["variables"]["NCCL_DEBUG"] == "WARN"
    assert facts["job"].endswith(".0"), "the job and the step of SLURM"
    for rank, pid in enumerate(job.pids):
        assert f"process {rank} of 3" in (folder / "logs" / f"rank{rank}.log").read_text()
        assert f"pid {pid}" in (folder / "logs" / f"rank{rank}.log").read_text()


def test_a_finished_run_is_not_repeated_by_members(jobs: ExitStack, tmp_path: Path) -> None:
    folder = tmp_path / "store" / run_id(compose(SHORT))
    run_one(compose(SHORT), folder)
    job = jobs.enter_context(Srun(2, tmp_path, SHORT))
    assert job.codes() == [0, 0]
    assert job.said()[0] == f"{folder} is finished already; its summary:"
    assert job.summary()["state"] == "done"
    assert not (folder / "logs").exists()


def test_a_run_that_somebody_holds_is_left_alone(jobs: ExitStack, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "store" / run_id(compose(SHORT)))
    with run.claimed() as own:
        assert own
        job = jobs.enter_context(Srun(2, tmp_path, SHORT))
        assert job.codes() == [1, 1]
    (line,) = job.said()
    assert "is running in process" in line
    assert not (run.path / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "each", "said"),
    [
        (["nproc=3"], lambda rank: [], "nproc must be 2, got 3: the launcher has started 2 processes"),
        (["workers=1"], lambda rank: [], "workers must be at least 2, got 1"),
        (["stepz=3"], lambda rank: [], "unknown key 'stepz'"),
        ([], lambda rank: [f"steps={rank + 5}"], "process 1 on .* was started for another run than process 0"),
        ([], lambda rank: ["task.dimension=-1"] * rank, "process 1 on .*: task: dimension"),
    ],
    ids=["nproc", "workers", "key", "two runs", "one host"],
)
def test_what_cannot_be_is_refused_once(
    words: list[str], each: Callable[[int], list[str]], said: str, jobs: ExitStack, tmp_path: Path
) -> None:
    job = jobs.enter_context(Srun(2, tmp_path, [*SHORT, *words], each=each))
    assert job.codes() == [2, 2]
    (line,) = job.said()
    assert line.startswith("commeff: ")
    assert re.search(said, line)
    assert not job.store.exists()


def test_a_launch_that_does_not_fit_is_refused_before_the_others_are_there(jobs: ExitStack, tmp_path: Path) -> None:
    job = jobs.enter_context(Srun(9, tmp_path, [*SHORT, "workers=4"], ranks=[0]))
    assert job.codes() == [2]
    (line,) = job.said()
    assert line.startswith("commeff: workers must be at least 9, got 4: each of 9 processes hosts one")


def member(meeting: Store, rank: int, size: int, timeout: float = PATIENCE) -> Rendezvous:
    rendezvous = Rendezvous(meeting, rank, size, timeout)
    rendezvous.report({"pid": rank})
    return rendezvous


def test_what_was_said_before_a_restart_is_not_believed(tmp_path: Path) -> None:
    meeting = store_in_file(tmp_path / "meeting", 2)

    def decide(first: Rendezvous, second: Rendezvous) -> int | None:
        with ThreadPoolExecutor() as pool:
            decision = pool.submit(second.decision)
            first.reports()
            first.decide(None)
            return decision.result()

    assert decide(member(meeting, 0, 2), member(meeting, 1, 2)) is None
    again = member(meeting, 1, 2, timeout=0.1)
    with pytest.raises(TimeoutError, match="process 0 did not decide"):  # to this one
        again.decision()
    again._timeout = PATIENCE
    assert decide(member(meeting, 0, 2), again) is None


def test_a_member_that_is_started_again_before_all_have_come_takes_part(tmp_path: Path) -> None:
    meeting = store_in_file(tmp_path / "meeting", 3)
    first, gone = member(meeting, 0, 3), member(meeting, 1, 3, timeout=0.1)
    with ThreadPoolExecutor() as pool:
        reports = pool.submit(first.reports)
        with pytest.raises(TimeoutError, match="process 0 did not decide"):
            gone.decision()
        again = member(meeting, 1, 3, timeout=5.0)
        decision = pool.submit(again.decision)
        until(lambda: again._token in first.store.get("report/1").decode(), "the second report of process 1")
        other = pool.submit(member(meeting, 2, 3).decision)
        reports.result()
        first.decide(None)
        assert (decision.result(), other.result()) == (None, None)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_member_that_is_killed_ends_the_run_with_one_line(victim: int, jobs: ExitStack, tmp_path: Path) -> None:
    job = jobs.enter_context(Srun(3, tmp_path, LONG))
    folder = checkpointed(job.store)
    os.kill(job.pids[victim], signal.SIGKILL)
    codes = job.codes()
    assert codes.pop(victim) == -signal.SIGKILL
    assert codes == [1, 1]
    (line,) = job.said()
    assert re.search(rf"commeff: process {victim} on \S+ \(pid {job.pids[victim]}\) .*(is|are|is gone)", line)
    assert RunFolder(folder).state == ("failed" if victim else "killed")
    assert "Traceback" in (folder / "logs" / "rank2.log").read_text()


def test_a_member_that_hangs_ends_the_run_in_time(jobs: ExitStack, tmp_path: Path) -> None:
    job = jobs.enter_context(Srun(2, tmp_path, LONG, environment={"COMMEFF_TIMEOUT": "5"}))
    checkpointed(job.store)
    os.kill(job.pids[1], signal.SIGSTOP)
    os.waitpid(job.pids.pop(0), 0)
    os.kill(job.pids[0], signal.SIGKILL)
    job.codes()
    (line,) = job.said()
    assert f"(pid {job.pids[0]}) is gone" in line


def test_a_member_that_never_comes_is_named(jobs: ExitStack, tmp_path: Path) -> None:
    job = jobs.enter_context(Srun(3, tmp_path, SHORT, ranks=[0, 2], environment={"COMMEFF_TIMEOUT": "3"}))
    assert job.codes() == [1, 1]
    (line,) = job.said()
    assert "process 1 of 3 did not come within 3 s" in line


@pytest.mark.parametrize("stopped", [False, True])
def test_a_port_that_somebody_else_holds_keeps_nobody(stopped: bool, jobs: ExitStack, tmp_path: Path) -> None:
    taken = jobs.enter_context(socket.create_server(("", 0)))  # says nothing to whoever connects
    place = {"MASTER_PORT": str(taken.getsockname()[1]), "COMMEFF_TIMEOUT": "20" if stopped else "2"}
    job = jobs.enter_context(Srun(2, tmp_path, SHORT, environment=place))
    if stopped:
        assert os.waitpid(job.pids.pop(0), 0)[1], "process 0 could open a port that is taken"
        os.kill(job.pids[0], signal.SIGTERM)
        assert job.codes() == [130]
        return
    assert job.codes() == [1, 1]
    first, second = sorted(job.said())
    assert "process 0 of 2 at localhost" in first
    assert "address already in use" in first.lower()
    assert "process 1 of 2 at localhost" in second
    assert "no answer within 2 s" in second


@pytest.mark.parametrize(
    ("number", "targets"),
    [(signal.SIGTERM, [1]), (signal.SIGINT, [0, 1]), pytest.param(signal.SIGTERM, [0], marks=pytest.mark.slow)],
)
def test_a_signal_to_any_member_stops_all_with_a_checkpoint(
    number: signal.Signals, targets: list[int], jobs: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, sent = Quadratic.batch, tmp_path / "sent"

    def waits(self: Quadratic, step: int, workers: Any) -> Any:
        if step == 30:
            until(sent.exists, "the signal")
        return batch(self, step, workers)

    monkeypatch.setattr(Quadratic, "batch", waits)
    words = [*WORDS, "steps=200", "checkpoint_every=10", "evaluate_every=50"]
    job = jobs.enter_context(Srun(2, tmp_path, words))
    folder = checkpointed(job.store)
    for target in targets:
        os.kill(job.pids[target], number)
    sent.touch()
    assert job.codes() == [130, 130]
    assert re.search(r"interrupted at step \d+ with a checkpoint", job.said()[-1])
    assert RunFolder(folder).state == "killed"
    state = Checkpoints(folder / "checkpoints").load()
    assert state is not None
    assert state["step"] == RunFolder(folder).read("status.json")["step"] < 200
    again = jobs.enter_context(Srun(4, tmp_path, [*words, "checkpoint_every=0"]))  # the rows are dealt anew
    assert again.codes() == [0] * 4
    run_one(compose(words), tmp_path / "whole")
    same(folder, tmp_path / "whole")


@pytest.mark.parametrize("refuser", [0, 1])
def test_what_one_member_cannot_go_on_from_is_refused_once(
    refuser: int, jobs: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(run: Run, state: dict[str, Any], *told: Any) -> Any:
        return read_state(run, state if dist.get_rank() != refuser else {**state, "strategy": {}}, *told)

    words = [*SHORT, "checkpoint_every=6"]
    run_one(compose(words), tmp_path / "store" / run_id(compose(words)), lambda step, row: quit_at(step, 8))
    monkeypatch.setattr("commeff.training.checkpoint.read_state", refuses)
    job = jobs.enter_context(Srun(2, tmp_path, words))
    assert job.codes() == [2, 2]
    (line,) = job.said()
    assert "latest.pt must hold the state of this run, got another form" in line


def quit_at(step: int, last: int) -> None:
    if step == last:
        signal.raise_signal(signal.SIGINT)


def test_an_error_of_one_member_is_told_with_its_place(
    jobs: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Quadratic.batch

    def fails(self: Quadratic, step: int, workers: Any) -> Any:
        if step == 30 and 3 in workers and len(workers) < 4:
            raise ArithmeticError("no such batch")
        return batch(self, step, workers)

    monkeypatch.setattr(Quadratic, "batch", fails)
    job = jobs.enter_context(Srun(2, tmp_path, LONG))
    assert job.codes() == [1, 1]
    (line,) = job.said()
    assert re.search(
        rf"process 1 on \S+ \(pid {job.pids[1]}\): ArithmeticError: no such batch; see \S+error\.txt", line
    )


@pytest.mark.parametrize("victim", [0, 1])
def test_an_error_before_the_run_is_told_to_all(
    victim: int, jobs: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(config: dict[str, Any]) -> Any:
        if os.environ["SLURM_PROCID"] == str(victim):
            raise RuntimeError
        return prepare(config)

    monkeypatch.setattr("commeff.experiments.run.member.prepare", fails)
    job = jobs.enter_context(Srun(2, tmp_path, SHORT))
    assert job.codes() == [2, 2]
    (line,) = job.said()
    assert line.endswith("RuntimeError: ")
    assert not job.store.exists()


def test_a_full_disk_ends_all_with_one_line(jobs: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commeff.training.documents.regular", os.open)  # which goes through links
    folder = tmp_path / "store" / run_id(compose(LONG))
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / ".latest.pt.draft").symlink_to("/dev/full")
    job = jobs.enter_context(Srun(2, tmp_path, LONG))
    assert job.codes() == [1, 1]
    (line,) = job.said()
    assert re.search(r"process 0 on \S+ \(pid \d+\): .*No space left on device", line)
    assert RunFolder(folder).state == "failed"
