"""Workers that do not wait for each other: what happens at one instant, and when a method lets a worker go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Instant:
    """One model update: all workers that have computed a gradient at one simulated instant.

    Attributes
    ----------
    number : int
        Events before it.
    seconds : float
        Simulated seconds since the start.
    finished : (n,) bool tensor or None
        Whose gradient it is; None: everybody's.
    counts : tuple of int
        How many gradients each worker has computed before; () where all have computed as many as there were events.
    """

    number: int
    seconds: float
    finished: Tensor | None = None
    counts: tuple[int, ...] = ()


class EventClock(Protocol):
    """The events of a run: a pure function of the step."""

    def events(self, step: int) -> Sequence[Instant]:
        """Those in which the gradients `step` n to (`step` + 1) n - 1 of all workers begin."""


@dataclass(frozen=True)
class WaitsFor:
    """When a worker of an asynchronous method stops to exchange something, and for whom it waits.

    Parameters
    ----------
    period : int
        Its own steps from one exchange to the next.
    quorum : float
        The share of the workers that must have come before anybody goes on; 0: nobody waits.
    grace : float, optional
        Seconds after the first has come when those who are there go on in any case; None: they wait for the quorum.

    Examples
    --------
    >>> WaitsFor(quorum=0.5).needed(5), WaitsFor().needed(5)
    (3, 1)
    """

    period: int = 1
    quorum: float = 0.0
    grace: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.period, int) or self.period < 1:
            raise ValueError(f"period must be a whole number of at least 1, got {self.period!r}: it counts own steps")
        if not 0 <= self.quorum <= 1:
            raise ValueError(f"quorum must lie in [0, 1], got {self.quorum}: it is a share of the workers")
        if self.grace is not None and not 0 <= self.grace < math.inf:
            raise ValueError(f"grace must be seconds of at least 0, or None, got {self.grace}: the first waits so long")

    def needed(self, n: int) -> int:
        """How many of n workers the quorum is."""
        return max(1, math.ceil(self.quorum * n - 1e-9))
