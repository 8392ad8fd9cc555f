"""The crew of forks: what each returns, raises, reports; that all end together, also with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from commeff.experiments.run.crew import Fork, crew
from commeff.experiments.run.launch.rendezvous import MemberLost
from commeff.experiments.run.progress import Stop
from commeff.training.documents import CheckpointRefused
from tests import owned
from tests.experiments.run.launchers import gone
from tests.owned import PATIENCE


def test_results_come_by_rank_and_tensors_by_value() -> None:
    def work(fork: Fork) -> torch.Tensor:
        time.sleep(0.1 * (fork.size - fork.rank))  # the last one is done first
        return torch.full((100_000,), float(fork.rank))

    with crew(3, work) as forks:
        assert [float(found.mean()) for found in forks.results()] == [0.0, 1.0, 2.0]


def test_forks_of_a_crew_are_a_group_and_report() -> None:
    heard: list[tuple[int, float]] = []

    def work(fork: Fork) -> None:
        with fork.group(PATIENCE):
            total = torch.ones(1)
            dist.all_reduce(total)
            fork.report(fork.rank, float(total))

    with crew(2, work) as forks:
        forks.results(lambda rank, total: heard.append((rank, total)))
    assert sorted(heard) == [(0, 2.0), (1, 2.0)]


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda: [][0], "process 1: IndexError: list index out of range"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "process 1 died with exit code -9"),
        (lambda: os._exit(0), "process 1 ended without a result"),
        (lambda: lambda: None, "process 1: AttributeError: Can't"),
    ],
)
def test_one_that_fails_is_named_and_ends_the_others(fails, words: str, tmp_path: Path) -> None:
    def work(fork: Fork) -> object:
        if fork.rank == 1:
            return fails()
        time.sleep(PATIENCE)
        return (tmp_path / "late").touch()

    with pytest.raises(MemberLost) as raised, crew(3, work) as forks:
        forks.results()
    assert str(raised.value).startswith(words)
    assert not (tmp_path / "late").exists()
    assert not multiprocessing.active_children()


def test_a_death_is_told_before_the_errors_that_follow_from_it() -> None:
    def work(fork: Fork) -> None:
        if fork.rank == 0:
            raise RuntimeError("connection closed by peer")
        time.sleep(0.2)
        os._exit(7)

    with pytest.raises(MemberLost, match=r"^process 1 died with exit code 7\b") as raised, crew(2, work) as forks:
        forks.results(grace=PATIENCE)
    assert "connection closed by peer" in raised.value.__notes__[0]


def test_a_refusal_is_told_before_the_errors_that_follow_from_it() -> None:
    def work(fork: Fork) -> None:
        if fork.rank == 0:
            raise RuntimeError("connection closed by peer")
        time.sleep(0.2)
        raise CheckpointRefused("another run's")

    with pytest.raises(CheckpointRefused, match=r"^another run's$"), crew(2, work) as forks:
        forks.results(grace=PATIENCE)


def test_a_request_to_stop_reaches_all() -> None:
    def work(fork: Fork) -> int:
        while not fork.stop.requested:
            time.sleep(0.01)
        return fork.rank

    with crew(2, work) as forks:
        assert forks.results(stop=Stop(requested=True)) == [0, 1]


def test_forks_end_with_their_parent(tmp_path: Path) -> None:
    def parent(line: Connection) -> None:
        with crew(2, lambda fork: time.sleep(PATIENCE)) as forks:
            line.send(forks.pids)
            forks.results()

    ours, theirs = multiprocessing.Pipe()
    process = owned.process(parent, (theirs,))
    process.start()
    assert ours.poll(PATIENCE)
    pids = ours.recv()
    process.kill()
    process.join()
    assert gone(pids)
