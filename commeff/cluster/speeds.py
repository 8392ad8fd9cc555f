"""How long each worker computes for each of its own steps: alike, drawn, given, with stragglers. In whole nanoseconds,
so that workers that should finish together do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commeff import require
from commeff.cluster.progress import Times

SECOND = 1_000_000_000  # nanoseconds
LONGEST = 9e18  # nanoseconds of a step: 285 years; more would not fit into 64 bits
CHUNK = 256  # steps that are drawn together


@dataclass(frozen=True)
class Speeds:
    """Computing times of n workers: a pure function of the worker and of how many steps it has taken.

    Parameters
    ----------
    n : int
        The number of workers.
    seconds : float
        The mean seconds of a step.
    spread : float
        Each step's time is drawn log-normal, with this standard deviation over the mean; 0: it is not drawn.
    straggler : float
        The last worker takes so many times as long.
    staggered : bool
        Worker i begins i/n of a step late, so that workers of one speed never finish together.
    trace : mapping of int to sequence of float
        The seconds of a worker's steps, one after the other, then from the first again, in the place of the mean.
    seed : int
        The seed of what is drawn.

    Examples
    --------
    >>> slow = Speeds(3, seconds=0.1, straggler=2.0)
    >>> [slow.nanoseconds(worker, 0) for worker in range(3)]
    [100000000, 100000000, 200000000]
    >>> Speeds(2, trace={1: [0.5, 2.0]}).matrix(3).tolist()
    [[1.0, 0.5], [1.0, 2.0], [1.0, 0.5]]
    """

    n: int
    seconds: float = 1.0
    spread: float = 0.0
    straggler: float = 1.0
    staggered: bool = False
    trace: Mapping[int, Sequence[float]] = field(default_factory=dict)
    seed: int = 0
    _chunks: dict[int, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require.within("(0, 1000000)", seconds=self.seconds, straggler=self.straggler)
        require.at_least(0, spread=self.spread)
        for worker, times in self.trace.items():
            if not 0 <= worker < self.n or not times or not all(0 < seconds < 1e6 for seconds in times):
                raise ValueError(
                    f"a trace must name workers from 0 to {self.n - 1}, with seconds in (0, 1000000), got worker "
                    f"{worker} with {list(times)[:3]}"
                )

    def nanoseconds(self, worker: int, count: int) -> int:
        """The length of the step of a worker that has taken `count` before."""
        return int(self._chunk(count // CHUNK)[count % CHUNK, worker])

    def matrix(self, steps: int) -> Times:
        """(steps, n) seconds of every worker's first steps."""
        chunks = [self._chunk(k) for k in range(-(-steps // CHUNK))]
        return np.concatenate([np.empty((0, self.n), dtype=np.int64), *chunks])[:steps] / SECOND

    def _chunk(self, k: int) -> NDArray[np.int64]:
        if k not in self._chunks:
            factors = (
                drawn(1.0, self.spread, CHUNK, self.n, [self.seed, k]) if self.spread else np.ones((CHUNK, self.n))
            )
            times = factors * self.seconds
            for worker, durations in self.trace.items():
                times[:, worker] *= np.resize(np.roll(durations, -(k * CHUNK) % len(durations)), CHUNK) / self.seconds
            times[:, -1] *= self.straggler
            if self.staggered and k == 0:
                times[0] += np.arange(self.n) * self.seconds / self.n
            self._chunks[k] = np.rint(times * SECOND).clip(1, LONGEST).astype(np.int64)
        return self._chunks[k]


def drawn(mean: float, spread: float, steps: int, workers: int, seed: int | Sequence[int] = 0) -> Times:
    """(steps, workers) log-normal compute times with the given mean; spread is the standard deviation over the mean.

    >>> times = drawn(mean=0.1, spread=0.2, steps=1000, workers=50)
    >>> round(float(times.mean()), 3), round(float(times.std() / times.mean()), 2)
    (0.1, 0.2)
    """
    require.at_least(0, mean=mean, spread=spread)
    variance = np.log1p(spread**2)
    noise = np.random.default_rng(seed).standard_normal((steps, workers))
    return np.asarray(mean * np.exp(np.sqrt(variance) * noise - variance / 2))
