"""Which part of a whole tensor a rank holds."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


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

    Examples
    --------
    >>> Cut(0, ((0, 1), (4, 5)), 1).take(torch.arange(8))
    tensor([0, 4])
    """

    dim: int
    runs: tuple[tuple[int, int], ...]
    copies: int

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
    return Cut(dim, runs if parts > 1 else runs[:1], 1)


def whole(dim: int, length: int, size: int) -> Cut:
    """Everything, at every rank."""
    return Cut(dim, ((0, length),), size)
