"""All processes stop before the same step, and nobody waits to hear whether."""

from __future__ import annotations

import time

import pytest
import torch.distributed as dist

from commeff import Communicator
from commeff.training.stop_vote import INTERVAL, StopVote
from tests.laws.processes import on_processes


def stopped(asks: int, at: int, pause: float, most: int = 2000) -> tuple[int, int]:
    """Before which step it was said to stop, and after how many votes, if rank `asks` is asked to before step `at`."""
    stop_vote, votes = StopVote(Communicator.per_process()), set()
    for step in range(most):
        if stop_vote.passed(dist.get_rank() == asks and step == at):
            return step, len(votes)
        votes.add(id(stop_vote._vote))
        time.sleep(pause)
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
        assert 2 < votes < 40


def test_who_is_a_vote_ahead_does_not_wait() -> None:
    def run() -> float:
        stop_vote, rank = StopVote(Communicator.per_process()), dist.get_rank()
        time.sleep(rank)
        begun = time.monotonic()
        stop_vote.passed(False)
        took = time.monotonic() - begun
        stop_vote.end()
        return took

    assert on_processes(2, run)[0] < 0.5


def test_a_process_alone_stops_at_once() -> None:
    stop_vote = StopVote(Communicator(workers=2))
    assert [stop_vote.passed(asked) for asked in (False, True)] == [False, True]
