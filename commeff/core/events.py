"""Workers that do not wait for each other: what happens at one instant, and when a method lets a worker go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from commeff import require


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
        require.count(period=self.period)
        require.within("[0, 1]", quorum=self.quorum)
        if self.grace is not None:
            require.at_least(0, grace=self.grace)

    def needed(self, n: int) -> int:
        """The number of workers, of n, in the quorum."""
        return max(1, math.ceil(self.quorum * n - 1e-9))


class OwnPace:
    """What a part of a strategy also is whose workers do not go in step.

    Attributes
    ----------
    waits_for : WaitsFor
        For whom its workers wait.
    own : (n,) int tensor
        The steps that each worker has taken; known after `start`.
    """

    waits_for: WaitsFor
    own: Tensor
