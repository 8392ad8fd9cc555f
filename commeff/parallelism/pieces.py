"""Which part of a whole tensor a rank holds."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from commeff.compressors.places import Stretches


class Cut(NamedTuple):
    """Runs of places along one dimension of a whole tensor.

    Attributes
    ----------
    dim : int
        The dimension that is cut.
    runs : tuple of (int, int)
        First place and the one after the last, of each run.
    copies : int
        How many ranks of the axis hold this piece.
    length : int
        Places along the dimension of the whole tensor.

    Examples
    --------
    >>> cut = Cut(0, ((0, 1), (4, 5)), 1, 8)
    >>> cut.take(torch.arange(8)), cut.places((2,))
    (tensor([0, 4]), (Stretches(start=0, length=1, stride=0, times=1), Stretches(start=4, length=1, stride=0, times=1)))
    """

    dim: int
    runs: tuple[tuple[int, int], ...]
    copies: int
    length: int

    def whole(self, piece: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the whole tensor, from that of the piece."""
        return (*piece[: self.dim], self.length, *piece[self.dim + 1 :])

    def piece(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the piece, from that of the whole tensor."""
        return (*whole[: self.dim], sum(stop - start for start, stop in self.runs), *whole[self.dim + 1 :])

    def places(self, piece: tuple[int, ...], start: int = 0) -> tuple[Stretches, ...]:
        """Where the numbers of a piece of this shape lie in a vector that has the whole tensor from ``start`` on."""
        inner, outer = prod(piece[self.dim + 1 :]), prod(piece[: self.dim])
        stride = self.length * inner
        spans = [(start + first * inner, (last - first) * inner) for first, last in self.runs]
        if len(spans) == 1 and (outer == 1 or spans[0][1] == stride):
            return (Stretches(spans[0][0], spans[0][1] * outer),)
        if len(spans) == 1:
            return (Stretches(*spans[0], stride, outer),)
        return tuple(Stretches(first + i * stride, length) for i in range(outer) for first, length in spans)

    def take(self, whole: Tensor) -> Tensor:
        """This piece of the whole, in memory of its own."""
        return torch.cat([whole.narrow(self.dim, start, stop - start) for start, stop in self.runs], self.dim)


def cut_evenly(dim: int, length: int, size: int, rank: int, parts: int = 1) -> Cut:
    """Each of `parts` equal parts of a dimension, dealt evenly to `size` ranks.

    >>> cut_evenly(0, 12, size=2, rank=1, parts=3).runs
    ((2, 4), (6, 8), (10, 12))
    """
    part, own = length // parts, length // parts // size
    runs = tuple((p * part + rank * own, p * part + (rank + 1) * own) for p in range(parts))
    return Cut(dim, runs if parts > 1 else runs[:1], 1, length)


def whole(dim: int, length: int, size: int) -> Cut:
    """Everything, at every rank."""
    return Cut(dim, ((0, length),), size, length)
