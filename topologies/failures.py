"""What fails: the weights of links and workers that are absent go to the diagonal."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, diags_array

from commeff.topologies.matrix import MixingMatrix

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
    kept = csr_array((links.data[~mask], (links.row[~mask], links.col[~mask])), shape=links.shape)
    own = matrix.sparse().diagonal() + np.bincount(ends[mask], links.data[mask], minlength=matrix.n)
    return MixingMatrix(kept + diags_array(own))


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
    there = np.asarray(present, dtype=bool)
    if there.shape != (matrix.n,):
        raise ValueError(f"present must say of each of the {matrix.n} workers whether it is there, got {there.shape}")
    links = matrix.off_diagonal.tocoo()
    return without_links(matrix, ~(there[links.row] & there[links.col]), keep)
