"""Graphs that change from step to step: one message a worker and step, yet fast consensus over time."""

from __future__ import annotations

from functools import partial

import numpy as np

from commeff.topologies.matrix import MixingMatrix, circulant, symmetric
from commeff.topologies.topology import Redrawn, Topology, from_matrices, integer


def one_peer_exponential(n: int) -> Topology:
    r"""The one-peer exponential graph: at step k worker i receives from :math:`i + 2^{k \bmod m}` (mod n).

    W = I/2 + shift/2, m = ceil(log2 n). If n = 2^m, any m consecutive steps average exactly; for other n they never do
    (use `base_graph`).
    Ying et al., Exponential graph is provably efficient for decentralized deep training, arXiv 2110.13363.

    When: one message a step, and exact consensus every log2 n steps: the cheapest of all for a power of two.

    Parameters
    ----------
    n : int
        Workers, from 1; consensus is exact for powers of two.

    Examples
    --------
    >>> [one_peer_exponential(8).at(step).received(7) for step in range(3)]
    [{0: 0.5, 7: 0.5}, {1: 0.5, 7: 0.5}, {3: 0.5, 7: 0.5}]
    """
    hops = max(1, (integer("one_peer_exponential: n", n, 1) - 1).bit_length())
    return from_matrices(circulant(n, {0: 0.5, 1 << t: 0.5}) for t in range(hops))


def random_matching(n: int, seed: int) -> Topology:
    """Every step a uniformly random pairing; the pairs average. For odd n one worker sits the step out.

    When: one message a step without any order, as where partners come as they are free.

    Parameters
    ----------
    n : int
        Workers, from 1.
    seed : int
        The seed of the random draws, from 0; equal on every worker.

    Examples
    --------
    >>> pairs = random_matching(6, seed=0)
    >>> pairs.period, pairs.at(5).out_degrees, pairs.at(5) is pairs.at(5)
    (None, array([1, 1, 1, 1, 1, 1]), True)
    """
    n, seed = integer("random_matching: n", n, 1), integer("random_matching: seed", seed, 0)
    return Redrawn(n=n, draw=partial(_matching, n, seed))


def _matching(n: int, seed: int, step: int) -> MixingMatrix:
    shuffled = np.random.default_rng([seed, step]).permutation(n)
    return symmetric(n, shuffled[: n // 2], shuffled[n // 2 : n // 2 * 2], 0.5)
