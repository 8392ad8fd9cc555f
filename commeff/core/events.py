"""Workers that do not wait for each other: what happens at one instant, and when a method lets a worker go on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
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
        """How many of n workers the quorum is."""
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


class Gathering:
    """Who of n workers goes on, as they come to the ends of their steps: a function of the order in which they come.

    Attributes
    ----------
    counts : list of int
        The steps that each worker has ended and gone on from.
    there : set of int
        Who has come to an exchange and waits there.
    exchanges : int
        Those that there have been.

    Examples
    --------
    >>> pairs = Gathering(3, WaitsFor(quorum=2 / 3))
    >>> pairs.come([2]), pairs.come([0]), pairs.counts
    (set(), {0, 2}, [1, 0, 1])
    """

    def __init__(self, n: int, waits_for: WaitsFor) -> None:
        self._period, self._needed = waits_for.period, waits_for.needed(n)
        self.counts, self.there, self.exchanges = [0] * n, set[int](), 0

    def meets(self, worker: int) -> bool:
        """Whether the step that a worker is in ends with an exchange."""
        return (self.counts[worker] + 1) % self._period == 0

    def come(self, workers: Iterable[int], over: bool = False) -> set[int]:
        """Who goes on when these have come to the ends of their steps; `over`: those who wait need not any longer."""
        arrived = {*workers}
        meeting = {worker for worker in arrived if self.meets(worker)}
        done, self.there = arrived - meeting, self.there | meeting
        if self.there and (over or len(self.there) >= self._needed):
            done, self.there, self.exchanges = done | self.there, set(), self.exchanges + 1
        for worker in done:
            self.counts[worker] += 1
        return done

    def instant(self, number: int, seconds: float, done: Iterable[int], counts: Sequence[int]) -> Instant:
        """The event in which these go on, who had `counts` before."""
        finished = torch.zeros(len(counts), dtype=torch.bool)
        finished[sorted(done)] = True
        return Instant(number, seconds, finished, tuple(counts))
