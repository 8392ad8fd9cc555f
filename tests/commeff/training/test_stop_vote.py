"""All processes stop before the same step, and nobody waits to hear whether."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from commeff import Communicator
from commeff.training.stop_vote import INTERVAL, StopVote
from tests.laws.processes import on_processes
from tests.owned import until


class Clock:
    """A clock that is moved by hand."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def stopped(asks: int, at: int, pause: float, most: int = 2000) -> tuple[int, int]:
    """Before which step it was said to stop, and after how many votes, if rank `asks` is asked to before step `at`."""
    clock, votes = Clock(), list[object]()
    stop_vote = StopVote(Communicator(), clock)
    for step in range(most):
        if stop_vote.passed(dist.get_rank() == asks and step == at):
            return step, len(votes)
        if stop_vote._vote is not None and not any(stop_vote._vote is vote for vote in votes):
            votes.append(stop_vote._vote)
        clock.seconds += pause
    stop_vote.end()
    return most, len(votes)


@pytest.mark.parametrize(("asks", "at"), [(0, 0), (2, 1), (1, 9)])
def test_all_stop_before_the_same_step_soon_after_one_was_asked(asks: int, at: int) -> None:
    (one, _), *others = on_processes(3, lambda: stopped(asks, at, pause=0.02))
    assert all(step == one for step, _ in others)
    assert at < one <= at + 4 * INTERVAL / 0.02


def test_nobody_stops_unasked_and_votes_are_rare() -> None:
    for step, votes in on_processes(2, lambda: stopped(asks=-1, at=0, pause=0.001, most=1500)):
        assert step == 1500
        assert 2 < votes <= 12  # 1, 2, 4, ... 256 steps apart, and then half a second


def test_who_is_a_vote_ahead_does_not_wait(tmp_path: Path) -> None:
    def run() -> bool:
        stop_vote, ahead = StopVote(Communicator()), tmp_path / "ahead"
        if dist.get_rank():
            until(ahead.exists, "process 0, which must not wait for this one")
        passed = stop_vote.passed(False)
        ahead.touch()
        stop_vote.end()
        return passed

    assert on_processes(2, run) == [False, False]
