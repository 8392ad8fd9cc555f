"""PowerSGD where tensors lie in pieces on several ranks: each multiplies its own, and the factors are of the whole."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from commeff.compressors import Layout
from commeff.compressors.layout import Field
from commeff.transforms.powersgd import matrix_shape, orthonormal


@dataclass(frozen=True)
class Piece:
    """What a rank holds of a matrix: some columns of the vector, which are numbers of these rows and columns of it.

    Attributes
    ----------
    name : str
        Of the matrix.
    start, stop : int
        The columns of the vector.
    rows, columns : (a,), (b,) int64
        Of the matrix, that have a number here.
    within : (stop - start,) int64 or None
        Where the numbers lie among all a b that these rows and columns have; None where all of them are here.
    copies : int
        How many ranks hold this piece, of those that cut tensors.
    """

    name: str
    start: int
    stop: int
    rows: Tensor
    columns: Tensor
    within: Tensor | None
    copies: int

    @classmethod
    def of(cls, field: Field, whole: Field, layout: Layout, device: torch.device) -> Piece:
        """The piece that a field of a layout is of a whole tensor."""
        assert layout.places is not None
        where = layout.places.of(field.start, field.stop) - (layout.whole.origin + whole.start)
        width = matrix_shape(whole)[1]
        rows, i = (where // width).unique(return_inverse=True)
        columns, j = (where % width).unique(return_inverse=True)
        within = None if len(where) == len(rows) * len(columns) else i * len(columns) + j
        indices = (rows.to(device), columns.to(device), None if within is None else within.to(device))
        return cls(field.name, field.start, field.stop, *indices, layout.copies(field.name))

    def read(self, v: Tensor) -> Tensor:
        """(w, d) -> (w, a, b), with zeros where another rank has the number."""
        numbers, shape = v[:, self.start : self.stop], (len(self.rows), len(self.columns))
        if self.within is not None:
            numbers = v.new_zeros(len(v), shape[0] * shape[1]).index_copy_(1, self.within, numbers)
        return numbers.unflatten(1, shape)

    def write(self, out: Tensor, matrix: Tensor) -> None:
        """(a, b) into the columns of out (1, d)."""
        numbers = matrix.flatten()
        out[0, self.start : self.stop] = numbers if self.within is None else numbers[self.within]


class PieceFactors:
    """The factors of whole tensors of which this rank holds pieces: all ranks that cut them have them.

    M Q is a sum over the columns of M and M^T P one over its rows, so that each rank has its share of both: of some
    rows or of some columns, and added to those of others in one message over the ranks, for all tensors. They all find
    the orthonormal basis, by the same numbers. The workers' mean is taken before, of what a rank has.
    """

    def __init__(self, layout: Layout, rank: int, device: torch.device) -> None:
        shapes = {field.name: matrix_shape(field) for field in layout.tensors}
        self._shapes = {name: (a, b) for name, (a, b) in shapes.items() if rank * (a + b) < a * b}
        whole = {field.name: field for field in layout.tensors}
        fields = [field for field in layout.fields if field.name in self._shapes]
        raw = [torch.arange(f.start, f.stop, device=device) for f in layout.fields if f.name not in self._shapes]
        self._pieces = [Piece.of(field, whole[field.name], layout, device) for field in fields]
        self.raw = torch.cat([*raw, torch.empty(0, dtype=torch.int64, device=device)])
        self._layout, self._rank = layout, rank
        self.right: dict[str, Tensor] = {}

    def read(self, v: Tensor) -> list[Tensor]:
        return [piece.read(v) for piece in self._pieces]

    def lefts(self, matrices: list[Tensor]) -> list[Tensor]:
        return [m @ self.right[p.name][p.columns] for m, p in zip(matrices, self._pieces, strict=True)]

    def orthonormal(self, lefts: list[Tensor]) -> list[Tensor]:
        wholes = self._joined(lefts, [piece.rows for piece in self._pieces], 0)
        bases = {name: orthonormal(left) for name, left in wholes.items()}
        return [bases[piece.name][piece.rows] for piece in self._pieces]

    def rights(self, matrices: list[Tensor], lefts: list[Tensor]) -> list[Tensor]:
        return [m.mT @ left for m, left in zip(matrices, lefts, strict=True)]

    def keep(self, rights: list[Tensor]) -> None:
        self.right = self._joined(rights, [piece.columns for piece in self._pieces], 1)

    def write(self, out: Tensor, lefts: list[Tensor]) -> None:
        for piece, left in zip(self._pieces, lefts, strict=True):
            piece.write(out, left @ self.right[piece.name][piece.columns].mT)

    def _joined(self, shares: list[Tensor], indices: list[Tensor], side: int) -> dict[str, Tensor]:
        """The whole factors, of this rank's shares (1, c, r) of them in these rows, and of those of others."""
        like = next(iter(self.right.values()), torch.empty(0))
        wholes = {name: like.new_zeros(shape[side], self._rank) for name, shape in self._shapes.items()}
        for piece, share, index in zip(self._pieces, shares, indices, strict=True):
            wholes[piece.name].index_copy_(0, index, share[0] / piece.copies)
        flat = torch.cat([like.new_empty(0), *(whole.flatten() for whole in wholes.values())])
        parts = self._layout.row_cat(flat[None])[0].split([whole.numel() for whole in wholes.values()])
        return {name: part.view(-1, self._rank) for name, part in zip(wholes, parts, strict=True)}
