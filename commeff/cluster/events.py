"""The event clock: which workers finish a gradient at which simulated instant. Seconds are modelled, never measured.

`InStep` is for synchronous methods, whose workers wait for those they hear from: a step is one event of all. In
`OutOfStep` every worker goes on as soon as the method lets it. Worker i computes for c_i(k) in its k-th step; its
exchanges with others take `exchange` seconds each, in which it stands still:

    it comes to an exchange at  t_i + c_i(k) + exchange  and goes on when the method's quorum has come.

Those who come at one instant are one event. Both are pure functions of their arguments, the same on every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import torch

from commeff.cluster.billing import Schedule
from commeff.cluster.modelled import play
from commeff.cluster.speeds import SECOND, Speeds
from commeff.core.events import Instant, WaitsFor
from commeff.profiling import Operation


def free(operation: Operation) -> float:
    """0: what an operation takes where sending takes no time."""
    return 0.0


class InStep:
    """The steps of a synchronous method: step k ends when the slowest worker has ended it.

    Parameters
    ----------
    speeds : how long each worker computes.
    schedule : a `commeff.profile`: who waits for whom, and what is sent.
    steps : of the run.
    price : the seconds of an operation.

    >>> from functools import partial
    >>> import torch
    >>> import commeff
    >>> method = commeff.methods.psgd(partial(torch.optim.SGD, lr=0.1))
    >>> clock = InStep(Speeds(4, straggler=2.0), commeff.profile(method, commeff.Layout.flat(8), 4), steps=3)
    >>> clock.events(2)
    (Instant(number=2, seconds=6.0, finished=None, counts=()),)
    """

    def __init__(
        self, speeds: Speeds, schedule: Schedule, *, steps: int, price: Callable[[Operation], float] = free
    ) -> None:
        self._seconds = play(schedule, price, steps=steps, compute=speeds.matrix(steps)).by_step

    def events(self, step: int) -> Sequence[Instant]:
        """The one event of a step."""
        return (Instant(step, float(self._seconds[step])),)


class OutOfStep:
    """The events of an asynchronous method. A step is n gradients: those of `step` are the events that begin in it.

    Parameters
    ----------
    speeds : how long each worker computes.
    waits_for : what the method waits for.
    exchange : seconds of an exchange.

    >>> clock = OutOfStep(Speeds(2, straggler=3.0), WaitsFor())
    >>> [(event.seconds, event.finished.tolist()) for step in (0, 1) for event in clock.events(step)]
    [(1.0, [True, False]), (2.0, [True, False]), (3.0, [True, True])]
    """

    def __init__(self, speeds: Speeds, waits_for: WaitsFor, exchange: float = 0.0) -> None:
        if not 0 <= exchange < 1e6:
            raise ValueError(f"exchange must be seconds in [0, 1000000), got {exchange}")
        self._speeds, self._waits_for, self._exchange = speeds, waits_for, round(exchange * SECOND)
        self._last, self._steps = -1, self._by_step()
        self._latest: tuple[Instant, ...] = ()

    def events(self, step: int) -> Sequence[Instant]:
        """The events of a step, at least one. Going back begins anew."""
        if step < self._last:
            self._last, self._steps = -1, self._by_step()
        while self._last < step:
            self._last, self._latest = self._last + 1, next(self._steps)
        return self._latest

    def _by_step(self) -> Iterator[tuple[Instant, ...]]:
        n = self._speeds.n
        for _, events in groupby(self._all(), key=lambda event: sum(event.counts) // n):
            yield tuple(events)

    def _all(self) -> Iterator[Instant]:
        n, waits_for, needed = self._speeds.n, self._waits_for, self._waits_for.needed(self._speeds.n)
        patience = None if waits_for.grace is None else round(waits_for.grace * SECOND)
        number, counts, waiting = 0, [0] * n, set[int]()  # of steps that each has gone on from; who is at an exchange
        ends, first = {worker: self._lasts(worker, 0) for worker in range(n)}, 0  # first: since when somebody waits
        while True:
            late = None if patience is None or not waiting else first + patience
            now = min([*ends.values(), *([] if late is None else [late])])
            first = first if waiting else now
            come = {worker for worker, end in ends.items() if end == now}
            meeting = {worker for worker in come if self._meets(counts[worker])}
            done, waiting = come - meeting, waiting | meeting
            if len(waiting) >= needed or (late is not None and now >= late):
                done, waiting = done | waiting, set()
            finished, before = torch.zeros(n, dtype=torch.bool), tuple(counts)
            for worker in come:
                del ends[worker]
            for worker in sorted(done):
                counts[worker] += 1
                finished[worker] = True
                ends[worker] = now + self._lasts(worker, counts[worker])
            if done:
                yield Instant(number, now / SECOND, finished, before)
                number += 1

    def _meets(self, count: int) -> bool:
        """Whether the step after so many ends with an exchange."""
        return (count + 1) % self._waits_for.period == 0

    def _lasts(self, worker: int, count: int) -> int:
        return self._speeds.nanoseconds(worker, count) + (self._exchange if self._meets(count) else 0)
