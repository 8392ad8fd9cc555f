"""PowerSGD: an approximate average by one step of subspace iteration. This is the definition, tensor by tensor;
`powersgd_batched` computes the same with few, large products and messages.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator, Handle
from commeff.compressors import DenseMessage, Layout
from commeff.compressors.layout import Field
from commeff.core.strategy import Stages, Traits, Transform


class PowerSGD(Transform):
    """Per tensor, M_i = v_i + e_i as a matrix:  P = orth(mean M_i Q);  Q = mean M_i^T P;  -> P Q^T;  e_i = M_i - P Q^T
    (arXiv 1905.13727).

    Tensors of one dimension, and matrices that two factors would not shrink, are averaged as they are. Exact where the
    mean matrix M has at most `rank` nonzero singular values and M Q spans its columns. Invariant: mean e_i = mean M_i -
    P Q^T. 16-bit vectors are factored in float32.
    Memory: error, a row a worker; right, the last Q, equal everywhere. Sends: two dense averages of each tensor,
    together r(a + b) numbers for an (a, b) matrix.

    Parameters
    ----------
    rank : int
        r, the number of columns of P and Q.
    """

    rows = ("error",)
    shared = ("right",)
    traits = Traits(scope="tensor", agrees=True)
    right: dict[str, Tensor]  # the last Q (b, r) of every approximated tensor, by its name

    def __init__(self, rank: int) -> None:
        require.at_least(1, "a low-rank average needs a column", rank=rank)
        self.rank = rank

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self._fields, random = layout.fields, communicator.random("right")
        self.error = torch.zeros_like(v, dtype=torch.promote_types(v.dtype, torch.float32))
        right, origin = {}, layout.whole.origin
        for field in layout.tensors:
            a, b = matrix_shape(field)
            if self.rank * (a + b) < a * b:
                draws = random.at(origin + field.start).normal(b * self.rank, shared=True, dtype=self.error.dtype)
                right[field.name] = draws[0].reshape(b, self.rank)
        self.right = right

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        target = self.error + vectors
        out = target.new_empty(1, target.shape[1])
        for field in self._fields:
            m = target[:, field.start : field.stop].unflatten(1, matrix_shape(field))
            if field.name in self.right:
                p = orthonormal((yield from _mean(m @ self.right[field.name], communicator.child("left"))))
                q = self.right[field.name] = yield from _mean(m.mT @ p, communicator.child("right"))
                approximation = p @ q.mT
            else:
                approximation = yield from _mean(m, communicator.child("left"))
            out[:, field.start : field.stop] = approximation.flatten()
        self.error = target - out
        return out.to(vectors.dtype).expand_as(vectors)


def matrix_shape(field: Field) -> tuple[int, int]:
    """A tensor as a matrix: the first dimension by all others; of one dimension, a single row.

    >>> [matrix_shape(field) for field in Layout.of([("weight", (8, 3, 5, 5)), ("bias", (8,))]).fields]
    [(8, 75), (1, 8)]
    """
    rows = field.shape[0] if len(field.shape) > 1 else 1
    return rows, (field.stop - field.start) // max(1, rows)


def orthonormal(matrix: Tensor) -> Tensor:
    """An orthonormal basis of the columns: (..., a, r) -> (..., a, r)."""
    return torch.linalg.qr(matrix).Q


def _mean(matrices: Tensor, communicator: Communicator) -> Generator[Handle[Tensor], Tensor, Tensor]:
    """(w, a, b) -> (a, b): the mean over all workers."""
    mean = yield communicator.post_average(DenseMessage.of(matrices.flatten(1)), rows=1)
    return mean[0].view(matrices.shape[1:])
