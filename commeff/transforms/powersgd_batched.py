"""PowerSGD, faster: all tensors of one shape in batched products, and all factors in two messages. Also where tensors
lie in pieces on several ranks (`powersgd_pieces`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from commeff.communicator import Communicator, Handle
from commeff.compressors import DenseMessage, Layout
from commeff.core.overlap import Stages
from commeff.transforms.powersgd import PowerSGD, matrix_shape, orthonormal
from commeff.transforms.powersgd_pieces import PieceFactors


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


class Factors(Protocol):
    """The matrices of rows, and the thin factors of their mean: P and Q are lists of tensors that begin with a row."""

    raw: Tensor  # the columns that are averaged as they are
    right: dict[str, Tensor]  # Q of every approximated tensor, by its name

    def read(self, v: Tensor) -> list[Tensor]:
        """The matrices M of rows (w, d)."""

    def lefts(self, matrices: list[Tensor]) -> list[Tensor]:
        """M Q."""

    def orthonormal(self, lefts: list[Tensor]) -> list[Tensor]:
        """P, from the mean of M Q."""

    def rights(self, matrices: list[Tensor], lefts: list[Tensor]) -> list[Tensor]:
        """M^T P."""

    def keep(self, rights: list[Tensor]) -> None:
        """The mean of M^T P is Q."""

    def write(self, out: Tensor, lefts: list[Tensor]) -> None:
        """P Q^T into the columns of out (1, d)."""


class Stacks:
    """Of whole tensors, stacked by their shapes. Factors lie transposed, as the rows of P^T and Q^T: so their products
    are fast, and they are sent as they lie.
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
        return [stack.read(v) for stack in self._stacks]

    def lefts(self, matrices: list[Tensor]) -> list[Tensor]:
        return [q @ m.mT for m, q in zip(matrices, self._right, strict=True)]

    def orthonormal(self, lefts: list[Tensor]) -> list[Tensor]:
        return [orthonormal(left.mT) for left in lefts]

    def rights(self, matrices: list[Tensor], lefts: list[Tensor]) -> list[Tensor]:
        return [p.mT @ m for m, p in zip(matrices, lefts, strict=True)]

    def keep(self, rights: list[Tensor]) -> None:
        # In memory of its own, as after a restart: rounding depends on where a matrix begins.
        self._right = [right.clone() for right in rights]

    def write(self, out: Tensor, lefts: list[Tensor]) -> None:
        for stack, p, q in zip(self._stacks, lefts, self._right, strict=True):
            stack.write(out, p, q)


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
        self._factors: Factors = kind(layout, self.rank, v.device)
        super().start(v, layout, communicator)

    @property
    def right(self) -> dict[str, Tensor]:
        """The last Q of every approximated tensor, by its name."""
        return self._factors.right

    @right.setter
    def right(self, named: dict[str, Tensor]) -> None:
        self._factors.right = named

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        target, factors = self.error.add_(vectors), self._factors
        matrices = factors.read(target)
        lefts, raw = yield from self._averages(
            factors.lefts(matrices), target[:, factors.raw], communicator.child("left")
        )
        lefts = factors.orthonormal(lefts)
        rights, _ = yield from self._averages(
            factors.rights(matrices, lefts), target[:, :0], communicator.child("right")
        )
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
