r"""EquiTopo's graphs: consensus at a rate that does not depend on n, at a degree that you choose, or of one.

Song et al., Communication-efficient topologies for decentralized learning with O(1) consensus rate, arXiv 2210.07881.
All are made of the one-peer graphs :math:`A(u) = \tfrac{n-1}{n} P^u + \tfrac1n I`, where :math:`P^u` lets i receive
from i + u; their mean over all u is J exactly.

=============  ==============================  ============================================
               directed                        undirected
=============  ==============================  ============================================
fixed          d_equistatic: mean of m A(u)    u_equistatic: mean of m (A(u) + A(u)')/2
of one peer    od_equidyn: A(u), u redrawn     ou_equidyn: pairs (i, i + u), u redrawn
=============  ==============================  ============================================
"""

from __future__ import annotations

from functools import partial

import numpy as np

from commeff.topologies.matrix import MixingMatrix, circulant, symmetric
from commeff.topologies.topology import Redrawn, Topology, fraction, from_matrices, integer


def d_equistatic(n: int, m: int, seed: int) -> Topology:
    r"""D-EquiStatic: the mean of m random one-peer graphs A(u), u uniform on 1 ... n-1.

    :math:`A(u) = \tfrac{n-1}{n} P^u + \tfrac1n I`, where :math:`P^u` lets i receive from i + u. The u are drawn with
    replacement, as published, so the degree is at most m; draws of which the graph is not connected are passed over.
    Directed, circulant. With :math:`m \ge \tfrac83 \ln(2n/p)/\epsilon^2`, :math:`\rho < \epsilon` with probability
    1 - p. Song et al., Communication-efficient topologies for decentralized learning with O(1) consensus rate, arXiv
    2210.07881.

    When: a fixed graph whose consensus does not depend on n, at a degree that you choose.

    Parameters
    ----------
    n : int
        Workers, from 1.
    m : int
        Shifts that are drawn, from 1: the most messages a worker sends in a step.
    seed : int
        The seed of the random draws, from 0; equal on every worker.

    Examples
    --------
    >>> d_equistatic(100, m=8, seed=0).at(0).degree
    8
    """
    return from_matrices([circulant(*_shifts("d_equistatic", n, m, seed))])


def u_equistatic(n: int, m: int, seed: int) -> Topology:
    r"""U-EquiStatic: `d_equistatic` and its reverse, half of each, which is undirected.

    :math:`W = \tfrac1{2m} \sum_u A(u) + A(u)^\top` over m random shifts u: i hears i + u and i - u. Circulant and
    symmetric, of degree 2m at the most, with a :math:`\rho` no larger than that of `d_equistatic`. Song et al., arXiv
    2210.07881.

    When: as `d_equistatic`, for methods that need symmetric weights (`lazy` first for `d2`).

    Parameters
    ----------
    n : int
        Workers, from 1.
    m : int
        Shifts that are drawn, from 1: half of the most messages a worker sends in a step.
    seed : int
        The seed of the random draws, from 0; equal on every worker.

    Examples
    --------
    >>> graph = u_equistatic(100, m=4, seed=0).at(0)
    >>> graph.degree, graph.symmetric, graph.rho <= d_equistatic(100, m=4, seed=0).at(0).rho
    (8, True, True)
    """
    n, hops = _shifts("u_equistatic", n, m, seed)
    both = dict.fromkeys([shift % n for shift in (*hops, *(-shift for shift in hops))], 0.0)
    for shift, weight in hops.items():
        both[shift % n] += weight / 2
        both[-shift % n] += weight / 2
    return from_matrices([circulant(n, both)])


def od_equidyn(n: int, eta: float, seed: int) -> Topology:
    r"""OD-EquiDyn: every step one shift u, uniform on 1 ... n-1, and :math:`W = (1 - \eta) I + \eta A(u)`.

    :math:`A(u) = \tfrac{n-1}{n} P^u + \tfrac1n I`; i receives from i + u. In expectation the squared
    disagreement shrinks by :math:`1 - 2/n` at eta = 1 and by :math:`(n-1)/(2n)` at eta = 1/2: one message a step,
    whatever n. Song et al., Communication-efficient topologies for decentralized learning with O(1) consensus rate,
    arXiv 2210.07881.

    When: one message a step, with a consensus that does not depend on n.

    Parameters
    ----------
    n : int
        Workers, from 1.
    eta : float
        Weight of what is received, in (0, 1]; 1/2 is the better one for large n.
    seed : int
        The seed of the random draws, from 0; equal on every worker.

    Examples
    --------
    >>> od_equidyn(4, eta=0.5, seed=0).at(0).degree
    1
    """
    n, seed = integer("od_equidyn: n", n, 1), integer("od_equidyn: seed", seed, 0)
    return Redrawn(n=n, draw=partial(_one_shift, n, fraction("od_equidyn: eta", eta), seed))


def ou_equidyn(n: int, eta: float, seed: int) -> Topology:
    r"""OU-EquiDyn: every step one shift u and one first worker s, from which on pairs (i, i + u) are made, undirected.

    Beginning at s, each worker i takes i + u as its peer if both are free; who is left over rests. Peers mix with the
    weight :math:`\eta \tfrac{n-1}{n}`: :math:`W = (1 - \eta) I + \eta A`. Symmetric, one message a worker. Song et al.,
    arXiv 2210.07881, Algorithm 2.

    When: as `od_equidyn`, where links are used both ways or weights must be symmetric.

    Parameters
    ----------
    n : int
        Workers, from 1.
    eta : float
        Weight of what is received, in (0, 1]; 1/2 is the better one for large n.
    seed : int
        The seed of the random draws, from 0; equal on every worker.

    Examples
    --------
    >>> graph = ou_equidyn(6, eta=0.5, seed=0).at(0)
    >>> graph.symmetric, graph.degree
    (True, 1)
    """
    n, seed = integer("ou_equidyn: n", n, 1), integer("ou_equidyn: seed", seed, 0)
    return Redrawn(n=n, draw=partial(_drawn_pairs, n, fraction("ou_equidyn: eta", eta), seed))


def _shifts(name: str, n: int, m: int, seed: int) -> tuple[int, dict[int, float]]:
    """n, and the weight of each drawn shift; 0 is the worker itself. A divisor of all and n would part workers."""
    n, m = integer(f"{name}: n", n, 1), integer(f"{name}: m", m, 1)
    random, drawn = np.random.default_rng([integer(f"{name}: seed", seed, 0), 0]), np.array([n])
    while np.gcd.reduce(drawn, initial=n) > 1:
        drawn = random.integers(1, max(n, 2), size=m)
    shifts, counts = np.unique(drawn, return_counts=True)
    hops = dict(zip(shifts.tolist(), (counts * ((n - 1) / (n * m))).tolist(), strict=True))
    return n, {0: 1 / n} | hops


def _one_shift(n: int, eta: float, seed: int, step: int) -> MixingMatrix:
    shift = int(np.random.default_rng([seed, step]).integers(1, max(n, 2)))
    return circulant(n, {0: 1 - eta * (n - 1) / n, shift: eta * (n - 1) / n})


def _drawn_pairs(n: int, eta: float, seed: int, step: int) -> MixingMatrix:
    draw = np.random.default_rng([seed, step])
    return paired(n, eta, shift=int(draw.integers(1, max(n, 2))), first=int(draw.integers(n)))


def paired(n: int, eta: float, shift: int, first: int) -> MixingMatrix:
    """Pairs (i, i + shift) of workers that are free, made from `first` on; peers mix with weight eta (n - 1)/n.

    >>> paired(5, 0.5, shift=2, first=4).received(4), paired(5, 0.5, shift=2, first=4).received(3)
    ({1: 0.4, 4: 0.6}, {3: 1.0})
    """
    free, pairs = [True] * n, list[tuple[int, int]]()
    for i in [*range(first, n), *range(first)]:
        j = (i + shift) % n
        if i != j and free[i] and free[j]:
            free[i] = free[j] = False
            pairs.append((i, j))
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return symmetric(n, ends[:, 0], ends[:, 1], eta * (n - 1) / n)
