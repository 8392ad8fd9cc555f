"""How processes agree to stop after the same step, without meeting at every step."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from commeff.communicator import Communicator, Handle

INTERVAL = 0.5  # seconds between two votes


class Agreement:
    """Whether any process was asked to stop, told to all before the same step.

    Every process says so in votes about half a second apart, and hears the sum of a vote when it casts the next: nobody
    waits for who is less than one vote behind. How many steps lie between two votes follows from the vote before, so
    that it is the same everywhere.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._vote: Handle[Tensor] | None = None
        self._steps, self._left, self._asked = 1, 1, False
        self._begun = time.monotonic()

    def reached(self, asked: bool) -> bool:
        """Called before every step, by every process: whether all stop here."""
        if self._communicator.transport.size == 1:
            return asked
        self._asked |= asked
        self._left -= 1
        if self._left:
            return False
        stop, step_seconds = False, (time.monotonic() - self._begun) / self._steps
        if self._vote is not None:
            votes, mean_seconds = self._vote.wait().tolist()
            stop = votes > 0
            self._steps = max(1, min(2 * self._steps, int(INTERVAL / max(mean_seconds, 1e-9))))
        said = torch.tensor([float(self._asked), step_seconds], dtype=torch.float64)
        self._vote = self._communicator.post_observe(said.expand(len(self._communicator.workers), -1))
        self._left, self._begun = self._steps, time.monotonic()
        return stop

    def end(self) -> None:
        """Hear the last vote, which all have cast."""
        if self._vote is not None:
            self._vote.wait()
