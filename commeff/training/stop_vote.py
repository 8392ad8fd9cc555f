"""How processes agree to stop after the same step, without meeting at every step."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from commeff.communicator import Communicator, Handle, post_observe

INTERVAL = 0.5  # seconds between two votes


class StopVote:
    """A vote on stopping, whose outcome is known to all processes before the same step.

    Every process votes about twice a second, and reads the sum of a vote when it casts the next: nobody waits for a
    process that is less than one vote behind. How many steps lie between two votes follows from the vote before, so
    that it is the same everywhere.

    Parameters
    ----------
    communicator : Communicator
        Whose processes vote.
    clock : callable
        The seconds since any moment.
    """

    def __init__(self, communicator: Communicator, clock: Callable[[], float] = time.monotonic) -> None:
        self._communicator, self._clock = communicator, clock
        self._vote: Handle[Tensor] | None = None
        self._steps, self._left, self._requested = 1, 1, False
        self._cast_at = self._clock()

    def passed(self, requested: bool) -> bool:
        """Whether all stop here. Called before every step, by every process.

        Parameters
        ----------
        requested : bool
            Whether this process has been told to stop.
        """
        self._requested |= requested
        self._left -= 1
        if self._left:
            return False
        stop, step_seconds = False, (self._clock() - self._cast_at) / self._steps
        if self._vote is not None:
            votes, mean_seconds = self._vote.wait().tolist()
            stop = votes > 0
            self._steps = max(1, min(2 * self._steps, int(INTERVAL / max(mean_seconds, 1e-9))))
        ballot = torch.tensor([float(self._requested), step_seconds], dtype=torch.float64)
        self._vote = post_observe(self._communicator, ballot.expand(len(self._communicator.workers), -1))
        self._left, self._cast_at = self._steps, self._clock()
        return stop

    def end(self) -> None:
        """Wait for the last vote, which every process has cast."""
        if self._vote is not None:
            self._vote.wait()
