"""PowerSGD: an approximate average by one step of subspace iteration."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from commeff.communicator import Communicator, Handle
from commeff.compressors import Layout
from commeff.core.flow import Stages
from commeff.core.strategy import Transform
from commeff.transforms.encoders import dense


@dataclass(frozen=True)
class Stack:
    """All tensors that read as (rows, columns) matrices of one shape, approximated at one rank in batched products."""

    starts: tuple[int, ...]
    rows: int
    columns: int
    rank: int

    def read(self, v: Tensor) -> Tensor:
        """(w, d) -> (w, count, rows, columns)."""
        size = self.rows * self.columns
        pieces = [v[:, s : s + size].unflatten(1, (1, self.rows, self.columns)) for s in self.starts]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def write(self, out: Tensor, lefts: Tensor, rights: Tensor) -> None:
        """The products of the factors into the columns of out: the inverse of `read`."""
        size = self.rows * self.columns
        for s, left, right in zip(self.starts, lefts.unbind(1), rights.unbind(1), strict=True):
            torch.bmm(left, right, out=out[:, s : s + size].view(-1, self.rows, self.columns))


class PowerSGD(Transform):
    """Per tensor, M_i = v_i + e_i as a matrix:  P = orth(mean M_i Q);  Q = mean M_i^T P;  -> P Q^T;  e_i = M_i - P Q^T
    (arXiv 1905.13727).

    Tensors of one dimension, and matrices that two factors would not shrink, are averaged as they are. Exact where the
    mean matrix M has at most `rank` nonzero singular values and M Q spans its columns. Invariant: mean e_i = mean M_i -
    P Q^T. 16-bit vectors are factored in float32.
    Memory: error, a row a worker; right, the last Q, equal everywhere. Sends: two dense averages, together r(a + b)
    numbers for an (a, b) matrix.
    """

    rows = ("error",)
    shared = ("right",)
    own_scope = "tensor"

    def __init__(self, rank: int) -> None:
        if rank < 1:
            raise ValueError(
                f"rank must be at least 1, got {rank}: a low-rank average needs a column; give rank=1 or more"
            )
        self.rank = rank

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        shapes: dict[tuple[int, int], list[int]] = {}
        raw: list[Tensor] = []
        for piece in layout.fields:
            rows = piece.shape[0] if len(piece.shape) > 1 else 1
            columns = (piece.stop - piece.start) // max(1, rows)
            if self.rank * (rows + columns) < rows * columns:
                shapes.setdefault((rows, columns), []).append(piece.start)
            else:
                raw.append(torch.arange(piece.start, piece.stop, device=v.device))
        self._stacks = [Stack(tuple(starts), rows, columns, self.rank) for (rows, columns), starts in shapes.items()]
        self._raw = torch.cat(raw) if raw else torch.empty(0, dtype=torch.int64, device=v.device)
        wide = torch.promote_types(v.dtype, torch.float32)
        self.error = torch.zeros_like(v, dtype=wide)
        random = communicator.random("right")
        self._names = {piece.start: piece.name for piece in layout.fields}
        self._right = []
        for stack in self._stacks:
            size = stack.columns * stack.rank
            draws = [random.shifted(s).normal(size, shared=True, dtype=wide)[0] for s in stack.starts]
            self._right.append(torch.stack(draws).reshape(1, -1, stack.columns, stack.rank).mT.contiguous())

    @property
    def right(self) -> dict[str, Tensor]:
        """The last Q of every approximated tensor, by its name."""
        return {
            self._names[start]: q
            for stack, qs in zip(self._stacks, self._right, strict=True)
            for start, q in zip(stack.starts, qs[0].mT, strict=True)
        }

    @right.setter
    def right(self, named: dict[str, Tensor]) -> None:
        stacked = [torch.stack([named[self._names[s]] for s in stack.starts])[None] for stack in self._stacks]
        self._right = [qs.mT.contiguous() for qs in stacked]

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        # Factors lie transposed, as the rows of P^T and Q^T: so their products are fast, and they are sent as they lie.
        wanted = self.error.add_(vectors)
        matrices = [stack.read(wanted) for stack in self._stacks]
        lefts, raw = yield from self._averages(
            [q @ m.mT for m, q in zip(matrices, self._right, strict=True)],
            wanted[:, self._raw],
            communicator.child("left"),
        )
        lefts = [torch.linalg.qr(left.mT).Q for left in lefts]
        self._right, _ = yield from self._averages(
            [p.mT @ m for m, p in zip(matrices, lefts, strict=True)], wanted[:, :0], communicator.child("right")
        )
        out = torch.empty_like(wanted[:1])
        out[:, self._raw] = raw
        for stack, p, q in zip(self._stacks, lefts, self._right, strict=True):
            stack.write(out, p, q)
        self.error = wanted.sub_(out)
        return out.to(vectors.dtype).expand_as(vectors)

    @staticmethod
    def _averages(
        factors: list[Tensor], rest: Tensor, communicator: Communicator
    ) -> Generator[Handle[Tensor], Tensor, tuple[list[Tensor], Tensor]]:
        """The exact averages of all factors and of the remaining numbers, in one message."""
        w = rest.shape[0]
        flat = torch.cat([*(f.reshape(w, -1) for f in factors), rest], dim=1)
        if not flat.shape[1]:
            return [], rest[:1]
        mean = (yield communicator.post_average(dense(flat)))[:1]
        sizes = [f.numel() // w for f in factors]
        *parts, last = mean.split_with_sizes([*sizes, rest.shape[1]], dim=1)
        return [part.reshape(1, *f.shape[1:]) for part, f in zip(parts, factors, strict=True)], last
