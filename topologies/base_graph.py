r"""The Base-(k+1) graph: exact consensus in O(log n) steps for EVERY n, with at most k neighbours at a time.

Takezawa et al., Beyond exponential graph: communication-efficient topologies for decentralized learning via finite-time
convergence, arXiv 2305.11420. Three constructions, each made of the one before (algorithms 1 to 3 there):

1. *Hyper-hypercube*. If n is a product of factors f <= k + 1, number the workers with these factors as radices. In
   step l the workers whose numbers differ in digit l only form a clique and average. Then all digits are averaged.
2. *Simple base graph*. Else write n in base k + 1. Each digit a at power p gives a set V of :math:`a (k+1)^p` workers,
   largest first, made of a blocks of :math:`(k+1)^p`.
   (a) Every set averages by 1.
   (b) Each set V in turn, N workers being in it or later ones: every later worker takes weight |V|/N from V, shared by
   one member of each block, and gives as much. The later workers so get what V owes them, and each block of V ends with
   the right mean, though its members differ. (V's idle members form cliques meanwhile: no cost, and kinder to SGD.)
   (c) Each block averages by 1.
3. *Base graph*. If n = p q, where p is a product of factors <= k + 1: p copies of 2 on q workers, then 1 across the
   copies; or 2 on all n, whichever takes fewer steps.

A *schedule* is a list of steps; a step is a list of edges (i, j, weight), exchanged both ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, combinations

import numpy as np

from commeff.topologies.matrix import symmetric
from commeff.topologies.topology import Topology, from_matrices, integer

Edge = tuple[int, int, float]
Schedule = list[list[Edge]]


def base_graph(n: int, k: int) -> Topology:
    r"""The Base-(k+1) graph: at most k neighbours a step, and the product of one period is J for every n.

    The period is at most :math:`2\log_{k+1} n + 2`. Symmetric at every step. A period starts at a multiple of it: other
    windows of that length need not average exactly.

    When: as `one_peer_exponential` for any n, and symmetric.

    Parameters
    ----------
    n : int
        Workers, any number from 1.
    k : int
        Most neighbours a worker may have in one step, from 1; more make the period shorter.

    References
    ----------
    Takezawa et al., arXiv 2305.11420, algorithm 3.

    Examples
    --------
    >>> five = base_graph(5, k=1)
    >>> product = np.eye(5)
    >>> for step in range(five.period):
    ...     product = five.at(step).dense() @ product
    >>> five.period, bool(abs(product - 1 / 5).max() < 1e-15)
    (5, True)
    """
    n, k = integer("base_graph: n", n, 1), integer("base_graph: k", k, 1)
    schedule = _base(list(range(n)), min(k, n)) or [[]]
    return from_matrices(symmetric(n, *zip(*step, strict=True)) if step else np.eye(n) for step in schedule)


def _base(workers: list[int], k: int) -> Schedule:
    rest = len(workers)
    for factor in range(2, k + 2):
        while rest % factor == 0:
            rest //= factor
    copies = [workers[start : start + rest] for start in range(0, len(workers), rest)]
    across = [workers[place::rest] for place in range(rest)]
    by_product = _together(_simple_base(copy, k) for copy in copies) + _together(_hyper_hypercube(a, k) for a in across)
    return min(by_product, _simple_base(workers, k), key=len)


def _simple_base(workers: list[int], k: int) -> Schedule:
    if _fewest_factors(len(workers), k + 1) is not None:
        return _hyper_hypercube(workers, k)
    sets = _by_digits(workers, k + 1)
    meeting = len(_hyper_hypercube(list(chain(*sets[0])), k))
    steps: Schedule = [[] for _ in range(meeting + 1 + len(_hyper_hypercube(sets[0][0], k)))]
    for turn, blocks in enumerate(sets):
        current, later = list(chain(*blocks)), list(chain(*chain(*sets[turn + 1 :])))
        _repeat(_hyper_hypercube(current, k), steps[:meeting])
        if later:
            weight = len(current) / (len(current) + len(later)) / len(blocks)
            idle = list(chain(*(block[len(later) :] for block in blocks)))
            steps[meeting + turn] += [(i, j, weight) for block in blocks for i, j in zip(later, block, strict=False)]
            steps[meeting + turn] += _cliques(idle[start : start + k + 1] for start in range(0, len(idle), k + 1))
        ending = blocks if len(blocks[0]) > 1 else [current]
        _repeat(_together(_hyper_hypercube(block, k) for block in ending), steps[meeting + turn + bool(later) :])
    return steps


def _hyper_hypercube(workers: list[int], k: int) -> Schedule:
    """Cliques along each digit, nearest workers first. The number of workers must have no prime factor above k + 1."""
    factors = _fewest_factors(len(workers), k + 1) or ()
    digits = np.reshape(workers, factors, order="F")
    return [_cliques(np.moveaxis(digits, axis, -1).reshape(-1, size).tolist()) for axis, size in enumerate(factors)]


def _cliques(groups: Iterable[list[int]]) -> list[Edge]:
    return [(i, j, 1 / len(group)) for group in groups for i, j in combinations(group, 2)]


def _together(schedules: Iterable[Schedule]) -> Schedule:
    """Schedules of equal length on different workers, side by side."""
    return [list(chain(*steps)) for steps in zip(*schedules, strict=True)]


def _repeat(schedule: Schedule, steps: Schedule) -> None:
    """Add `schedule` to `steps`, over and over until they end: averaging what is averaged changes nothing."""
    for position, step in enumerate(steps):
        step += schedule[position % len(schedule)] if schedule else []


def _by_digits(workers: list[int], base: int) -> list[list[list[int]]]:
    """The workers as sets, one for each nonzero digit of their number, largest first, each as its blocks of base^power.

    >>> _by_digits(list(range(7)), 3)                       # 7 = 2 * 3 + 1
    [[[0, 1, 2], [3, 4, 5]], [[6]]]
    """
    power = 1
    while power * base <= len(workers):
        power *= base
    sets = []
    while workers:
        digit = len(workers) // power
        if digit:
            sets.append([workers[start : start + power] for start in range(0, digit * power, power)])
        workers, power = workers[digit * power :], power // base
    return sets


def _fewest_factors(n: int, largest: int) -> tuple[int, ...] | None:
    """The shortest way to write n as a product of numbers from 2 to `largest`, ascending; None if there is none.

    >>> _fewest_factors(48, 6), _fewest_factors(1, 2), _fewest_factors(14, 6)
    ((2, 4, 6), (), None)
    """
    if n == 1:
        return ()
    ways = []
    for factor in range(min(n, largest), 1, -1):
        if n % factor == 0 and (others := _fewest_factors(n // factor, factor)) is not None:
            ways.append((*others, factor))
    return min(ways, key=len, default=None)
