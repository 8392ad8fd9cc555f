"""ZeRO stage 1 (arXiv 1910.02054): the ranks of a worker all have its parameters, and share its states."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from commeff.parallelism.collectives import Axis


class SharedRow:
    """A worker's row of d numbers at each of n ranks, of which each rank updates an n-th.

    A step costs a reduce-scatter of gradients and an all-gather of parameters: 2 (n-1)/n d numbers, as an all-reduce.

    Parameters
    ----------
    d : int
        Length of the row.
    axis : Axis
        The ranks.

    Attributes
    ----------
    start, stop : int
        The columns that this rank updates.

    Examples
    --------
    >>> from commeff.parallelism import Axis
    >>> [(row.start, row.stop) for row in (SharedRow(10, Axis("shard", 4, rank)) for rank in range(4))]
    [(0, 3), (3, 6), (6, 9), (9, 10)]
    """

    def __init__(self, d: int, axis: Axis) -> None:
        self._axis, self._width = axis, -(-d // axis.size)
        self._padding = self._width * axis.size - d
        self.start, self.stop = axis.rank * self._width, min((axis.rank + 1) * self._width, d)
        if self._width * (axis.size - 1) >= d:
            raise ValueError(f"{axis.name} = {axis.size} ranks need a longer row than {d} numbers: take fewer ranks")

    def own(self, row: Tensor) -> Tensor:
        """(1, d) -> this rank's columns, in the same memory."""
        return row[:, self.start : self.stop]

    def begin(self, tensor: Tensor) -> None:
        """Make a tensor that of the first rank, at all."""
        self._axis.broadcast(tensor)

    def reduce(self, gradient: Tensor) -> Tensor:
        """This rank's columns of the mean gradient (1, d) of all ranks, each of which has seen a share of the batch."""
        if self._axis.size == 1:
            return gradient
        padded = F.pad(gradient, (0, self._padding))
        return (self._axis.scatter(padded, 1) / self._axis.size)[:, : self.stop - self.start]

    def spread(self, updated: Tensor, row: Tensor) -> None:
        """Write this rank's updated columns, and those of all others, into the row (1, d)."""
        own = self.own(row)
        if updated.data_ptr() != own.data_ptr():
            own.copy_(updated)
        if self._axis.size > 1:
            padded = F.pad(own, (0, self._width - own.shape[1]))
            row.copy_(self._axis.gather(padded, 1)[:, : row.shape[1]])
