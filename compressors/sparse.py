"""Messages that carry some of the coordinates, and the compressors that choose them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from commeff.compressors.base import Compressor, Scope, check_least
from commeff.compressors.layout import Layout
from commeff.compressors.message import Compound, Message
from commeff.compressors.random import WorkerRandom

_CHUNK = 1 << 22


@dataclass(frozen=True, eq=False)
class Sparse(Compound, ABC):
    """k coordinates of each row, the others 0. The inner message holds the k values and may be compressed itself."""

    @abstractmethod
    def indices(self) -> Tensor:
        """(w, k) int64: distinct in each row."""

    @property
    def values(self) -> Message:
        """The message of the (w, k) values."""
        return self.inner[0]

    def with_values(self, values: Message) -> Self:
        """The same coordinates with another message of their values."""
        return replace(self, parts=(*self.parts[: self._outer_count], *values.parts), forms=(values.form,))

    def coordinates(self) -> tuple[Tensor, Tensor]:
        """(w, k): indices and values."""
        return self.indices(), self.values.decode()

    def decode(self) -> Tensor:
        indices, values = self.coordinates()
        return values.new_zeros(self.rows, self.d).scatter_(1, indices, values)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """out += weights @ decode(): a scatter of k numbers for every weight that is not 0."""
        if not out.is_meta:
            scatter_to(out, weights, *self.coordinates())

    def add_rows(self, out: Tensor, sign: Literal[1, -1] = 1) -> None:
        indices, values = self.coordinates()
        out.scatter_add_(1, indices, sign * values)


@dataclass(frozen=True, eq=False)
class VariableSparse(Message, ABC):
    """Some coordinates of each row, others 0, as many as the longest row needs, on which all workers agree.

    Rows that have fewer are filled up with coordinates that add nothing.
    """

    @property
    @abstractmethod
    def lengths(self) -> tuple[int, ...]: ...

    @abstractmethod
    def coordinates(self) -> tuple[Tensor, Tensor]:
        """(w, k): indices and values, 0 and 0 where a row has fewer."""

    @abstractmethod
    def counts(self) -> Tensor:
        """(w,): how many coordinates each row has."""

    @abstractmethod
    def of_length(self, k: int) -> Self:
        """The same with k coordinates a row, no fewer than any has."""

    def stretched(self, lengths: Sequence[int]) -> Self:
        return self if tuple(lengths) == self.lengths else self.of_length(lengths[0])

    def select(self, rows: slice | list[int] | Tensor) -> Self:
        """Some of the rows, as long as the longest of these needs."""
        chosen = super().select(rows)
        return chosen.of_length(int(chosen.counts().max()) if chosen.rows else 0)

    def decode(self) -> Tensor:
        indices, values = self.coordinates()
        return values.new_zeros(self.rows, self.d, dtype=self.dtype).scatter_add_(1, indices, values.to(self.dtype))

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        if not out.is_meta:
            indices, values = self.coordinates()
            scatter_to(out, weights, indices, values.to(self.dtype))


def left_aligned(mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(w,) how many of the coordinates of a mask (w, d) each row has; and of each, row by row, its row, its column, and
    which of its row it is.

    >>> left_aligned(torch.tensor([[False, True, True], [True, False, False]]))
    (tensor([2, 1]), tensor([0, 0, 1]), tensor([1, 2, 0]), tensor([0, 1, 0]))
    """
    counts, (row, column) = mask.sum(1), mask.nonzero(as_tuple=True)
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    return counts, row, column, place


def scatter_to(out: Tensor, weights: Tensor, indices: Tensor, values: Tensor) -> None:
    """out += weights @ (rows of values at indices), for ``out`` (r, d), ``weights`` (r, w), the others (w, k)."""
    values, weights, total = values.to(out), weights.to(out), out.contiguous()
    pairs = weights.nonzero()
    for receiver, sender in (chunk.T for chunk in pairs.split(max(1, _CHUNK // max(1, values.shape[1])))):
        terms = values[sender].mul_(weights[receiver, sender][:, None])
        places = indices[sender].add_(receiver[:, None] * out.shape[1])
        total.view(-1).scatter_add_(0, places.flatten(), terms.flatten())
    if total is not out:
        out.copy_(total)


@dataclass(frozen=True)
class Sparsifier(Compressor, ABC):
    """Keeps max(1, round(ratio * d)) or exactly k of the d coordinates of a row.

    Parameters
    ----------
    ratio
        The share of the coordinates that is kept, in (0, 1]; at least one coordinate is.
    k
        The number of coordinates that is kept, from 1 to d. Exactly one of ratio and k is given.
    """

    ratio: float | None = None
    k: int | None = None

    scope: ClassVar[Scope] = "whole"

    def __post_init__(self) -> None:
        name = type(self).__name__
        if (self.ratio is None) == (self.k is None):
            raise ValueError(
                f"{name}: exactly one of ratio and k must be given, got ratio={self.ratio} and k={self.k}; give "
                "ratio=0.01 or k=100"
            )
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise ValueError(f"{name}: ratio must lie in (0, 1], got {self.ratio}")
        check_least(f"{name}: k", self.k)

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the coordinates that are kept are sent as they are, not scaled."""

    @abstractmethod
    def compress(self, vectors: Tensor, random: WorkerRandom) -> Sparse: ...

    def count(self, d: int) -> int:
        """Number of coordinates kept of d."""
        if self.k is not None and self.k > d:
            raise ValueError(
                f"{type(self).__name__}: k must be at most d = {d}, got {self.k}: no more coordinates than a vector "
                f"has can be kept; give k <= {d}, or a ratio"
            )
        return min(d, max(1, round((self.ratio or 0) * d))) if self.k is None else self.k

    def bind(self, layout: Layout) -> Compressor:
        self.count(layout.d)
        return self
