"""Messages that carry some of the coordinates, and the compressors that choose them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

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
        return replace(self, parts=(*self.parts[: self._own], *values.parts), forms=(values.form,))

    def decode(self) -> Tensor:
        values = self.values.decode()
        return values.new_zeros(self.rows, self.d).scatter_(1, self.indices(), values)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """out += weights @ decode(): a scatter of k numbers for every weight that is not 0."""
        if out.is_meta:
            return
        scatter_to(out, weights, *coordinates(self))


def coordinates(message: Sparse) -> tuple[Tensor, Tensor]:
    """The indices (w, k) of a message, and their values (w, k)."""
    return message.indices(), message.values.decode()


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

    def kept(self, d: int) -> int:
        """Number of coordinates kept of d."""
        if self.k is not None and self.k > d:
            raise ValueError(
                f"{type(self).__name__}: k must be at most d = {d}, got {self.k}: no more coordinates than a vector "
                f"has can be kept; give k <= {d}, or a ratio"
            )
        return min(d, max(1, round((self.ratio or 0) * d))) if self.k is None else self.k

    def bind(self, layout: Layout) -> Compressor:
        self.kept(layout.d)
        return self
