"""Compressors that take one number of the whole row, and then each coordinate by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from commeff.compressors.base import Compressor, Scope, Together
from commeff.compressors.layout import Layout
from commeff.compressors.message import Message
from commeff.compressors.random import WorkerRandom


class ScaledRows(Compressor, ABC):
    """A scale of the row, and each coordinate in terms of it.

    So a row may lie in pieces on several ranks, which agree on its scale at every step.
    """

    scope: ClassVar[Scope] = "whole"

    @abstractmethod
    def measure(self, vectors: Tensor, layout: Layout | None = None) -> Tensor:
        """(w, 1) or more columns: the scale of rows (w, d), or of those of which these are pieces of this layout."""

    @abstractmethod
    def scaled(self, vectors: Tensor, scale: Tensor, random: WorkerRandom) -> Message:
        """The message of rows of this scale."""

    @property
    def exact_on_pieces(self) -> bool:
        return True

    def bind(self, layout: Layout) -> Compressor:
        return self if layout.places is None or not self.exact_on_pieces else ScaledTogether(self, layout)

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        return self.scaled(vectors, self.measure(vectors), random)


@dataclass(frozen=True)
class ScaledTogether(Together[ScaledRows]):
    """The same on pieces of a row, whose ranks agree on the scale."""

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        return self.compressor.scaled(vectors, self.compressor.measure(vectors, self.layout), random)

    @classmethod
    def samples(cls) -> list[Self]:
        from commeff.compressors.quantised import QSGD, TernGrad  # which are made of what is above

        return [cls(QSGD(4), Layout.flat(24)), cls(TernGrad(), Layout.flat(24))]
