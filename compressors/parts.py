"""Columns of a vector that belong together though others lie between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from commeff.compressors.layout import Layout


@dataclass(frozen=True, eq=False)
class Part:
    """Columns that lie at the same ranks.

    Attributes
    ----------
    name : str
        Those ranks, in words: "tensor 1", or "everywhere".
    spans : sequence of (int, int)
        The columns, as first ones and those after the last.
    layout : Layout
        Of the columns one after the other.
    cut : bool
        Whether ranks cut tensors, here or elsewhere in the row.
    placed : bool
        Whether the row's layout knows where its columns lie in the whole.
    alike : bool
        Whether the ranks that hold copies of its columns have them in the same part.
    """

    name: str
    spans: Sequence[tuple[int, int]]
    layout: Layout
    cut: bool = True
    placed: bool = True
    alike: bool = True

    def read(self, v: Tensor) -> Tensor:
        """(w, d) -> (w, columns)."""
        return torch.cat([v[:, a:b] for a, b in self.spans], dim=1)

    def write(self, out: Tensor, columns: Tensor) -> None:
        """The inverse of `read`."""
        for (a, b), piece in zip(self.spans, columns.split([b - a for a, b in self.spans], dim=1), strict=True):
            out[:, a:b] = piece
