"""PowerSGD, faster: all tensors of one shape in batched products, and all factors in two messages. Also where tensors
lie in pieces on several ranks: each multiplies its own, and the factors are of the whole.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from commeff.communicator import Communicator, Handle
from commeff.compressors import DenseMessage, Layout
from commeff.compressors.layout import Field
from commeff.core.strategy import Stages
from commeff.transforms.powersgd import PowerSGD, matrix_shape, orthonormal


@dataclass(frozen=True)
class Stack:
    """All tensors that read as (rows, columns) matrices of one shape, approximated in batched products."""

    starts: tuple[int, ...]
    rows: int
    columns: int

    def read(self, v: Tensor) -> Tensor:
        """(w, d) -> (w, count, rows, columns)."""
        if v.is_meta:
            return v.new_empty(len(v), len(self.starts), self.rows, self.columns)
        size = self.rows * self.columns
        pieces = [v[:, s : s + size].unflatten(1, (1, self.rows, self.columns)) for s in self.starts]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def write(self, out: Tensor, lefts: Tensor, rights: Tensor) -> None:
        """The products of the factors into the columns of out: the inverse of `read`."""
        if out.is_meta:
            return
        size = self.rows * self.columns
        for s, left, right in zip(self.starts, lefts.unbind(1), rights.unbind(1), strict=True):
            torch.bmm(left, right, out=out[:, s : s + size].view(-1, self.rows, self.columns))


class Stacks:
    """The matrices of whole tensors, stacked by their shapes, and the thin factors of their mean. Factors lie
    transposed, as the rows of P^T and Q^T: so their products are fast, and they are sent as they lie.

    Attributes
    ----------
    raw : Tensor
        The columns that are averaged as they are.
    """

    def __init__(self, layout: Layout, rank: int, device: torch.device) -> None:
        shapes: dict[tuple[int, int], list[int]] = {}
        raw: list[Tensor] = []
        for field in layout.fields:
            a, b = matrix_shape(field)
            if rank * (a + b) < a * b:
                shapes.setdefault((a, b), []).append(field.start)
            else:
                raw.append(torch.arange(field.start, field.stop, device=device))
        self._stacks = [Stack(tuple(starts), a, b) for (a, b), starts in shapes.items()]
        self.raw = torch.cat(raw) if raw else torch.empty(0, dtype=torch.int64, device=device)
        self._names = {field.start: field.name for field in layout.fields}

    @property
    def right(self) -> dict[str, Tensor]:
        """Q of every approximated tensor, by its name."""
        return {
            self._names[start]: q
            for stack, qs in zip(self._stacks, self._right, strict=True)
            for start, q in zip(stack.starts, qs[0].mT, strict=True)
        }

    @right.setter
    def right(self, named: dict[str, Tensor]) -> None:
        stacked = [torch.stack([named[self._names[s]] for s in stack.starts])[None] for stack in self._stacks]
        self._right = [qs.mT.contiguous() for qs in stacked]

    def read(self, v: Tensor) -> list[Tensor]:
        """The matrices M of rows (w, d)."""
        return [stack.read(v) for stack in self._stacks]

    def lefts(self, matrices: list[Tensor]) -> list[Tensor]:
        """M Q."""
        return [q @ m.mT for m, q in zip(matrices, self._right, strict=True)]

    def orthonormal(self, lefts: list[Tensor]) -> list[Tensor]:
        """P, from the mean of M Q."""
        return [orthonormal(left.mT) for left in lefts]

    def rights(self, matrices: list[Tensor], lefts: list[Tensor]) -> list[Tensor]:
        """M^T P."""
        return [p.mT @ m for m, p in zip(matrices, lefts, strict=True)]

    def keep(self, rights: list[Tensor]) -> None:
        """The mean of M^T P is Q."""
        # In memory of its own, as after a restart: rounding depends on where a matrix begins.
        self._right = [right.clone() for right in rights]

    def write(self, out: Tensor, lefts: list[Tensor]) -> None:
        """P Q^T into the columns of out (1, d)."""
        for stack, p, q in zip(self._stacks, lefts, self._right, strict=True):
            stack.write(out, p, q)


@dataclass(frozen=True)
class Piece:
    """What a rank holds of a matrix: some columns of the vector, which are numbers of these rows and columns of it.

    Attributes
    ----------
    name : str
        The name of the matrix.
    start, stop : int
        The columns of the vector.
    rows, columns : (a,), (b,) int64
        The rows and columns of the matrix that have a number here.
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
    """As `Stacks`, of whole tensors of which this rank holds pieces: all ranks that cut them have the factors.

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


class BatchedPowerSGD(PowerSGD):
    """As `PowerSGD`, up to rounding, with the same memory.

    Sends: two dense averages, together r(a + b) numbers for each (a, b) matrix.

    Parameters
    ----------
    rank : int
        r, the number of columns of P and Q.
    """

    traits = replace(PowerSGD.traits, exact_on_pieces=True)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        kind = Stacks if layout.places is None else PieceFactors
        self._factors: Stacks | PieceFactors = kind(layout, self.rank, v.device)
        super().start(v, layout, communicator)

    @property
    def right(self) -> dict[str, Tensor]:
        """The last Q of every approximated tensor, by its name."""
        return self._factors.right

    @right.setter
    def right(self, named: dict[str, Tensor]) -> None:
        self._factors.right = named

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        target, factors, child = self.error.add_(vectors), self._factors, communicator.child
        matrices = factors.read(target)
        lefts, raw = yield from self._averages(factors.lefts(matrices), target[:, factors.raw], child("left"))
        lefts = factors.orthonormal(lefts)
        rights, _ = yield from self._averages(factors.rights(matrices, lefts), target[:, :0], child("right"))
        factors.keep(rights)
        out = target.new_empty(1, target.shape[1])
        out[:, factors.raw] = raw
        factors.write(out, lefts)
        self.error = target.sub_(out)
        return out.to(vectors.dtype).expand_as(vectors)

    @staticmethod
    def _averages(
        factors: list[Tensor], rest: Tensor, communicator: Communicator
    ) -> Generator[Handle[Tensor], Tensor, tuple[list[Tensor], Tensor]]:
        """The exact averages of all factors and of the remaining numbers, in one message."""
        flat = torch.cat([*(f.flatten(1) for f in factors), rest], dim=1)
        if not flat.shape[1]:
            return [], rest.new_empty(1, 0)
        mean = yield communicator.post_average(DenseMessage.of(flat), rows=1)
        sizes = [prod(f.shape[1:]) for f in factors]
        *parts, last = mean.split_with_sizes([*sizes, rest.shape[1]], dim=1)
        return [part.reshape(1, *f.shape[1:]) for part, f in zip(parts, factors, strict=True)], last
