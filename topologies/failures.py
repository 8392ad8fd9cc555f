"""What fails: links that drop out, and the weights of links and workers that are absent, which go to the diagonal."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array

from commeff.topologies.matrix import MixingMatrix
from commeff.topologies.topology import Redrawn, Topology, integer

Sums: TypeAlias = Literal["rows", "columns"]


def without_links(matrix: MixingMatrix, lost: ArrayLike, keep: Sums | None = None) -> MixingMatrix:
    r"""W without the lost messages: their weights go to the diagonal, so that the sums stay.

    ``keep="rows"``: the receiver i of a lost message of j puts its own vector in its place,
    :math:`W_{ii} \leftarrow W_{ii} + W_{ij}`. ``keep="columns"``: the sender j keeps what it cannot send,
    :math:`W_{jj} \leftarrow W_{jj} + W_{ij}`, as push-sum requires. Where W is symmetric and both directions of a link
    are lost the two are one, and W stays symmetric and doubly stochastic.

    Parameters
    ----------
    matrix : MixingMatrix
        The weights if all are there.
    lost : (messages,) bool
        Which messages are lost, in the order of the stored entries of `matrix.off_diagonal`.
    keep : {"rows", "columns"}, optional
        Which sums stay; unless given the rows' if they are 1, else the columns'.

    Examples
    --------
    >>> pair = MixingMatrix([[0.5, 0.5], [0.5, 0.5]])
    >>> without_links(pair, [True, False]).dense()                        # 0 hears nothing of 1
    array([[1. , 0. ],
           [0.5, 0.5]])
    >>> without_links(pair, [True, False], keep="columns").dense()        # 1 keeps what it meant for 0
    array([[0.5, 0. ],
           [0.5, 1. ]])
    """
    links = matrix.off_diagonal.tocoo()
    mask = np.asarray(lost, dtype=bool)
    if mask.shape != links.data.shape:
        raise ValueError(
            f"lost must say of each of the {links.nnz} messages whether it is lost, got shape {mask.shape}: give one "
            "truth value for each stored entry of matrix.off_diagonal"
        )
    if not mask.any():
        return matrix
    ends = links.row if (keep or ("rows" if matrix.row_stochastic else "columns")) == "rows" else links.col
    remaining = csr_array((links.data[~mask], (links.row[~mask], links.col[~mask])), shape=links.shape)
    diagonal = matrix.sparse().diagonal() + np.bincount(ends[mask], links.data[mask], minlength=matrix.n)
    return MixingMatrix(remaining + diags_array(diagonal))


def without_workers(matrix: MixingMatrix, present: ArrayLike, keep: Sums | None = None) -> MixingMatrix:
    r"""W among those who are present: every message from or to an absent worker is lost (`without_links`).

    An absent worker keeps what it has: its row and its column are those of the identity. A symmetric W stays symmetric
    and doubly stochastic.

    Parameters
    ----------
    matrix : MixingMatrix
        The weights if all are there.
    present : (n,) bool
        Who is there.
    keep : {"rows", "columns"}, optional
        Which sums stay; unless given the rows' if they are 1, else the columns'.

    Examples
    --------
    >>> from commeff.topologies import complete
    >>> without_workers(complete(4).at(0), [True, True, False, True]).dense()
    array([[0.5 , 0.25, 0.  , 0.25],
           [0.25, 0.5 , 0.  , 0.25],
           [0.  , 0.  , 1.  , 0.  ],
           [0.25, 0.25, 0.  , 0.5 ]])
    """
    mask = np.asarray(present, dtype=bool)
    if mask.shape != (matrix.n,):
        raise ValueError(f"present must say of each of the {matrix.n} workers whether it is there, got {mask.shape}")
    links = matrix.off_diagonal.tocoo()
    return without_links(matrix, ~(mask[links.row] & mask[links.col]), keep)


def failing_links(topology: Topology, p: float, seed: int, push_sum: bool = False) -> Topology:
    r"""Every link of a topology fails with probability p at every step, alone; its weight goes to the diagonal.

    Where the weights are symmetric a link fails in both directions, and each end keeps what it would have given, so
    that they stay symmetric and doubly stochastic. Else every message fails alone: its receiver takes its own vector
    instead, which keeps the rows' sums but not the mean, or with `push_sum` its sender keeps what it could not send,
    which keeps the columns' sums. In expectation the matrix is :math:`(1 - p) W + p I`. What is lost is not billed.

    When: experiments on unreliable networks.

    Parameters
    ----------
    topology : Topology
        The graph of all links, fixed or changing.
    p : float
        The probability of a failure, in [0, 1).
    seed : int
        The seed of the random draws, from 0; equal on every worker.
    push_sum : bool
        Keep the columns' sums, as `sgp` needs.

    Examples
    --------
    >>> from commeff.topologies import ring
    >>> network = failing_links(ring(8), p=0.3, seed=0)
    >>> [int(network.at(step).out_degrees.sum()) for step in range(4)], network.at(3).doubly_stochastic
    ([10, 10, 8, 14], True)
    """
    if not 0 <= p < 1:
        raise ValueError(f"failing_links: p must lie in [0, 1), got {p}")
    keep: Sums | None = "columns" if push_sum else None
    draw = partial(_with_failures, topology, p, integer("failing_links: seed", seed, 0), keep)
    draw(0)
    return Redrawn(n=topology.n, draw=draw)


def _with_failures(topology: Topology, p: float, seed: int, keep: Sums | None, step: int) -> MixingMatrix:
    matrix = topology.at(step)
    if keep == "columns" and not matrix.column_stochastic:
        raise ValueError(
            "failing_links: the columns must sum to 1 for push_sum, got others: choose a graph that divides what it "
            "sends, such as exponential or from_graph(a directed graph)"
        )
    links = matrix.off_diagonal.tocoo()
    receivers, senders = links.row.astype(np.int64), links.col.astype(np.int64)
    if matrix.symmetric:
        receivers, senders = np.minimum(receivers, senders), np.maximum(receivers, senders)
    distinct, inverse = np.unique(receivers * matrix.n + senders, return_inverse=True)
    failed = np.random.default_rng([seed, step]).random(len(distinct)) < p
    return without_links(matrix, failed[inverse], keep)


def among(matrix: MixingMatrix, present: ArrayLike, keep: Sums | None = None) -> MixingMatrix:
    """The rows and columns of those who are present, of `without_workers`: a graph of them alone.

    >>> from commeff.topologies import complete
    >>> among(complete(4).at(0), [True, True, False, False]).dense()
    array([[0.75, 0.25],
           [0.25, 0.75]])
    """
    members = np.flatnonzero(np.asarray(present, dtype=bool))
    return MixingMatrix(without_workers(matrix, present, keep).sparse()[members][:, members])
