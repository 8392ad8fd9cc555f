"""Layers cut into the stages of a pipeline, and three ways to find the best cuts: all of them, dynamic programming,
integer programming.

A stage i with n layers takes t[i, n] seconds for a micro-batch, and b[i, n] bytes. All m micro-batches of 1F1B or GPipe
are through, where stages are nearly equal, after

    sum_i t[i, n_i]  +  (m - 1) max_i t[i, n_i],

which is what is made small, under b[i, n_i] <= limit. The stages need not be alike: the first has the embedding, the
last the logits, early ones keep more in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
TIE = 1e-4  # of the mean stage: what a tie-break weighs


@dataclass(frozen=True, eq=False)
class CutChain:
    """A table for every stage, and how many micro-batches pass.

    Parameters
    ----------
    seconds : (stages, layers): [i, n - 1] of stage i with n layers, for one micro-batch.
    possible : (stages, layers): whether n layers fit on stage i.
    micro_batches : m.
    """

    seconds: Table
    possible: NDArray[np.bool_]
    micro_batches: int

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.seconds)

    @property
    def layers(self) -> int:
        """Number of layers to be placed."""
        return self.seconds.shape[1]

    @property
    def prices(self) -> Table:
        """What a stage adds to the sum. Of equally good cuts we want the one of most equal layers, and of those the one
        that has them late, where less is in flight: two terms too small to matter otherwise.
        """
        n, place = np.arange(1.0, self.layers + 1), np.arange(self.stages)[:, None]
        early = (self.stages - place) * n / (self.layers * self.stages)
        even = (n * self.stages / self.layers - 1) ** 2
        extra = TIE * self.seconds.mean() * (even + 1e-2 * early)
        return np.where(self.possible, self.seconds + extra, np.inf)

    def cost(self, cuts: tuple[int, ...]) -> float:
        """Seconds of a step whose stages have so many layers, with the tie-break."""
        places = np.arange(self.stages), np.array(cuts) - 1
        return float(self.prices[places].sum() + (self.micro_batches - 1) * self.seconds[places].max())

    @property
    def ways(self) -> int:
        """The number of ways to cut the layers."""
        return comb(self.layers - 1, self.stages - 1)


Cuts = tuple[int, ...] | None


def every(chain: CutChain) -> Cuts:
    """All cuts tried: the truth. None if none fits.

    >>> every(CutChain(np.array([[1.0, 2, 3, 4], [3, 4, 5, 6]]), np.ones((2, 4), dtype=bool), 8))
    (3, 1)
    """
    inner = np.array(list(combinations(range(1, chain.layers), chain.stages - 1)), dtype=int)
    ends = np.full((len(inner), 1), chain.layers)
    counts = np.diff(np.hstack([0 * ends, inner.reshape(len(ends), -1), ends]), axis=1)
    stage = np.arange(chain.stages)
    prices, slowest = chain.prices[stage, counts - 1].sum(axis=1), chain.seconds[stage, counts - 1].max(axis=1)
    costs = prices + (chain.micro_batches - 1) * slowest
    best = int(np.argmin(costs))
    return tuple(int(n) for n in counts[best]) if np.isfinite(costs[best]) else None


def dynamic(chain: CutChain) -> Cuts:
    """Dynamic programming. For each value that the slowest stage could have, the cheapest sum over stages none of which
    is slower; the best of all these is exact.

        least[i, k] = min_n  price[i, n] + least[i + 1, k - n],      t[i, n] <= slowest

    Slowest values are tried from below, from where the stages can hold all layers. They end where they alone cost more
    than the best that was found. With S different values between, p stages and l layers it takes S p l^2 additions.

    >>> dynamic(CutChain(np.array([[1.0, 2, 3, 4], [3, 4, 5, 6]]), np.ones((2, 4), dtype=bool), 8))
    (3, 1)
    """
    prices, often = chain.prices, chain.micro_batches - 1
    least = prices.min(axis=1).sum()  # no cut has a smaller sum
    best, cuts = np.inf, None
    for slowest in np.unique(chain.seconds[chain.possible]):
        if often * slowest + least >= best:
            break
        allowed = chain.possible & (chain.seconds <= slowest)
        if (allowed * np.arange(1, chain.layers + 1)).max(axis=1).sum() < chain.layers:
            continue
        path, cost = _cheapest(np.where(allowed, prices, np.inf))
        if path is not None and cost + often * slowest < best:
            best, cuts = chain.cost(path), path
    return cuts


def _cheapest(prices: Table) -> tuple[Cuts, float]:
    """Cuts with the least sum of prices."""
    stages, layers = prices.shape
    behind = np.full(layers + 1, np.inf)
    behind[0] = 0.0
    choices = np.zeros((stages, layers + 1), dtype=int)
    index = np.arange(layers + 1)[:, None] - np.arange(1, layers + 1)[None, :]  # k - n
    for stage in range(stages - 1, -1, -1):
        sums = np.where(index >= 0, prices[stage] + behind[np.maximum(index, 0)], np.inf)
        choices[stage] = sums.argmin(axis=1) + 1
        behind = sums.min(axis=1)
    if not np.isfinite(behind[layers]):
        return None, np.inf
    left, cuts = layers, []
    for stage in range(stages):
        cuts.append(int(choices[stage, left]))
        left -= cuts[-1]
    return tuple(cuts), float(behind[layers])


def integer(chain: CutChain) -> Cuts:
    """Integer programming by HiGHS (`scipy.optimize.milp`): x[i, n] is 1 if stage i has n layers, z the slowest stage.

        minimise  sum price[i, n] x[i, n] + (m - 1) z
        where     sum_n x[i, n] = 1,   sum_{i, n} n x[i, n] = l,   sum_n t[i, n] x[i, n] <= z

    >>> integer(CutChain(np.array([[1.0, 2, 3, 4], [3, 4, 5, 6]]), np.ones((2, 4), dtype=bool), 8))
    (3, 1)
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    stages, layers = chain.seconds.shape
    unit = chain.seconds.mean() / 1e3  # HiGHS is exact to 1e-6
    one = np.kron(np.eye(stages), np.ones(layers))
    all_layers = np.tile(np.arange(1.0, layers + 1), stages)
    slowest = np.kron(np.eye(stages), np.ones(layers)) * chain.seconds.ravel() / unit
    z = np.zeros((stages, 1))
    constraints = [
        LinearConstraint(np.hstack([one, z]), 1, 1),
        LinearConstraint(np.append(all_layers, 0.0), layers, layers),
        LinearConstraint(np.hstack([slowest, z - 1]), -np.inf, 0),
    ]
    allowed = chain.possible.ravel()
    prices = np.where(allowed, chain.prices.ravel(), 0.0) / unit
    solution = milp(
        np.append(prices, chain.micro_batches - 1.0),
        constraints=constraints,
        integrality=np.append(np.ones(stages * layers), 0),
        bounds=Bounds(0, np.append(allowed.astype(float), np.inf)),
        options={"mip_rel_gap": 0.0, "time_limit": 30.0, "presolve": False},  # its presolve writes to stdout
    )
    if solution.x is None:
        return None
    chosen = [int(n) for n in solution.x[:-1].reshape(stages, layers).argmax(axis=1) + 1]
    late = (*chosen[:1], *sorted(chosen[1:-1]), *chosen[-1:][: stages - 1])  # HiGHS rounds the last term away
    return min((tuple(chosen), late), key=chain.cost)
