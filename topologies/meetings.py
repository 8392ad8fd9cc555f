"""Who meets whom where workers do not wait for each other: pairs, and readers of what others have left."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array

from commeff.topologies.matrix import MixingMatrix, symmetric
from commeff.topologies.topology import Redrawn, Topology, integer


def random_pairs(topology: Topology, seed: int) -> Topology:
    """Every step the workers, in random order, each ask a random neighbour that is free; the pairs average.

    When: gossip in which a worker talks to one neighbour a step; what `ad_psgd` is if nobody is late.

    Parameters
    ----------
    topology : Topology
        Who may meet whom; its weights do not count.
    seed : int
        The seed of the random draws, from 0; equal on every worker.

    Examples
    --------
    >>> from commeff.topologies import ring
    >>> pairs = random_pairs(ring(6), seed=0)
    >>> pairs.period, pairs.at(3).doubly_stochastic, int(pairs.at(3).degree)
    (None, True, 1)
    """
    seed = integer("random_pairs: seed", seed, 0)
    return Redrawn(n=topology.n, draw=partial(_all_meet, topology, seed))


def _all_meet(topology: Topology, seed: int, step: int) -> MixingMatrix:
    return meeting(topology, seed, step, np.ones(topology.n, dtype=bool))


def meeting(topology: Topology, seed: int, step: int, asking: ArrayLike) -> MixingMatrix:
    """The pairs of a step in which only some workers ask; any free neighbour answers.

    >>> from commeff.topologies import ring
    >>> meeting(ring(4), 0, 5, [False, True, False, False]).dense()
    array([[0.5, 0.5, 0. , 0. ],
           [0.5, 0.5, 0. , 0. ],
           [0. , 0. , 1. , 0. ],
           [0. , 0. , 0. , 1. ]])
    """
    n, asks = topology.n, np.asarray(asking, dtype=bool)
    links = topology.at(step).off_diagonal
    random = np.random.default_rng([seed, step])
    order, lots = random.permutation(n), random.random(n)
    free, first, second = np.ones(n, dtype=bool), list[int](), list[int]()
    for worker in order[asks[order]].tolist():
        neighbours = links.indices[links.indptr[worker] : links.indptr[worker + 1]]
        choice = neighbours[free[neighbours]]
        if free[worker] and len(choice):
            partner = int(choice[int(lots[worker] * len(choice))])
            free[[worker, partner]] = False
            first.append(worker)
            second.append(partner)
    return symmetric(n, first, second, 0.5)


def reading(matrix: MixingMatrix, readers: ArrayLike) -> MixingMatrix:
    """W whose readers alone mix, with what their neighbours have left; the others' rows are those of the identity.

    >>> from commeff.topologies import complete
    >>> reading(complete(3).at(0), [True, False, False]).dense().round(2)
    array([[0.33, 0.33, 0.33],
           [0.  , 1.  , 0.  ],
           [0.  , 0.  , 1.  ]])
    """
    reads = np.asarray(readers, dtype=bool)
    if reads.all():
        return matrix
    chosen = diags_array(reads.astype(np.float64))
    return MixingMatrix(csr_array(chosen @ matrix.sparse() + diags_array(1.0 - reads)))


def sides(topology: Topology) -> NDArray[np.bool_]:
    """(n,) the workers of one side, where every edge goes from one side to the other.

    Raises
    ------
    ValueError
        If there are no two such sides.

    >>> from commeff.topologies import ring
    >>> sides(ring(4))
    array([ True, False,  True, False])
    """
    from networkx import NetworkXError, bipartite, from_scipy_sparse_array  # late: a quarter of a second

    try:
        colour = bipartite.color(from_scipy_sparse_array(topology.at(0).off_diagonal))
    except NetworkXError:
        raise ValueError(
            "every edge must join one side to the other for one_sided, got a graph with a cycle of odd length: those "
            "who ask and those who answer must be apart; choose an even ring or hypercube, or one_sided=false"
        ) from None
    return np.array([colour[worker] == 1 for worker in range(topology.n)])
