"""Where the time of a step goes: computing, and communication that computing hides or does not. Modelled.

A worker computes for c seconds, a third of them forward, and has one link, which sends one operation after the other:

    an operation posted before the gradient is computed (`early`) leaves when the step begins;
    one that leaves in buckets follows the backward pass, each bucket when it is done;
    all others leave when the gradient is there, or the operation before them has been waited for.

The worker goes on when the operations awaited in the step have arrived. While it stands still communication is
*exposed*, otherwise *hidden*. Workers are alike, so one clock stands for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commeff.profiling import Operation

FORWARD = 1 / 3  # of computing, before the first gradient is there: a backward pass costs two forward passes
SETTLED = 32  # steps, or four periods, after which every further period takes as long as the last


@dataclass(frozen=True)
class Timeline:
    """Modelled seconds of a run.

    Attributes
    ----------
    ends : (steps + 1,) seconds at which each step has ended; 0 at first.
    compute : of a step.
    exposed, hidden : of a step in the mean, by kind of operation.
    """

    ends: NDArray[np.float64]
    compute: float
    exposed: Mapping[str, float]
    hidden: Mapping[str, float]

    @property
    def step(self) -> float:
        """Seconds of a step in the mean."""
        return float(self.ends[-1]) / max(1, len(self.ends) - 1)

    def at(self, step: int) -> float:
        """Seconds until so many steps are done."""
        return float(self.ends[step])


@dataclass
class _Transfer:
    kind: str
    start: float
    end: float
    waited: int


def timeline(
    operations: Callable[[int], Sequence[Operation]],
    seconds: Callable[[Operation], float],
    *,
    steps: int,
    compute: float,
    first: int = 0,
    period: int = 1,
) -> Timeline:
    """The timeline of a run.

    Parameters
    ----------
    operations : of a step.
    seconds : that one of them takes.
    steps : of the run.
    compute : seconds of computing in a step.
    first, period : from which step on operations repeat, and after how many steps.
    """
    played = min(steps, first + period * max(4, -(-SETTLED // period)))
    clock = _Clock(compute, seconds)
    ends = np.zeros(steps + 1)
    for step in range(played):
        clock.step(step, operations(step))
        ends[step + 1] = clock.now
    if played < steps:  # the last period again and again
        turn = np.diff(ends[played - period : played + 1])
        rest = np.resize(turn, steps - played)
        ends[played + 1 :] = ends[played] + np.cumsum(rest)
    # How often each played step comes: once, and those of the last period again as the run goes on.
    times = np.ones(played)
    np.add.at(times, played - period + np.arange(steps - played) % period, 1)
    exposed, hidden = clock.sums(times)
    return Timeline(ends, compute, *({kind: s / steps for kind, s in each.items()} for each in (exposed, hidden)))


class _Clock:
    """A worker and its link."""

    def __init__(self, compute: float, seconds: Callable[[Operation], float]) -> None:
        self.compute, self.seconds = compute, seconds
        self.now = self.free = 0.0
        self.transfers: list[tuple[int, _Transfer]] = []
        self.stops: list[tuple[float, float]] = []  # from when to when the worker stood still
        self.under_way: list[_Transfer] = []

    def step(self, step: int, operations: Sequence[Operation]) -> None:
        begin, done = self.now, self.now + self.compute
        backward = begin + FORWARD * self.compute
        path = next((op.path for op in operations if op.bucketed), "")  # other parts need the results of this one
        early = [op for op in operations if op.early]
        buckets = [op for op in operations if not op.early and op.bucketed and op.path == path]
        others = [op for op in operations if not op.early and not (op.bucketed and op.path == path)]
        for op in early:
            self._send(step, op, begin)
        total, reached = sum(op.payload_bytes for op in buckets), 0.0
        for op in buckets:
            reached += op.payload_bytes
            self._send(step, op, backward + (done - backward) * (reached / total if total else 1.0))
        self.now = done
        self._wait(step)
        for op in others:
            self._send(step, op, self.now)
            self._wait(step)

    def _send(self, step: int, op: Operation, ready: float) -> None:
        start = max(ready, self.free)
        self.free = start + self.seconds(op)
        transfer = _Transfer(op.kind, start, self.free, op.waited)
        self.transfers.append((step, transfer))
        self.under_way.append(transfer)

    def _wait(self, step: int) -> None:
        ends = [transfer.end for transfer in self.under_way if transfer.waited <= step]
        if ends and max(ends) > self.now:
            self.stops.append((self.now, max(ends)))
            self.now = max(ends)
        self.under_way = [transfer for transfer in self.under_way if transfer.waited > step]

    def sums(self, times: NDArray[np.float64]) -> tuple[dict[str, float], dict[str, float]]:
        """Exposed and hidden seconds by kind, what each step sent counting so many times."""
        exposed, hidden = defaultdict[str, float](float), defaultdict[str, float](float)
        for (step, transfer), stood in self._stood():
            exposed[transfer.kind] += times[step] * stood
            hidden[transfer.kind] += times[step] * max(0.0, transfer.end - transfer.start - stood)
        return dict(exposed), dict(hidden)

    def _stood(self) -> Iterator[tuple[tuple[int, _Transfer], float]]:
        """Each transfer, and for how long of it the worker stood still. Both lie in the order of time."""
        first = 0
        for entry in self.transfers:
            start, end = entry[1].start, entry[1].end
            while first < len(self.stops) and self.stops[first][1] <= start:
                first += 1
            stood, i = 0.0, first
            while i < len(self.stops) and self.stops[i][0] < end:
                stood += max(0.0, min(end, self.stops[i][1]) - max(start, self.stops[i][0]))
                i += 1
            yield entry, stood
