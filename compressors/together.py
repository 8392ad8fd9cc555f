"""What works on whole rows, on rows of which several ranks hold pieces."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from commeff.compressors.base import Compressor, Scope
from commeff.compressors.layout import Layout

C = TypeVar("C", bound=Compressor)


@dataclass(frozen=True)
class Together(Compressor, ABC, Generic[C]):
    """A compressor on pieces of a row, exactly as it is on the whole: made by its `bind`.

    Attributes
    ----------
    compressor : Compressor
        What it is on whole rows.
    layout : Layout
        Where the pieces lie.
    """

    compressor: C
    layout: Layout

    scope: ClassVar[Scope] = "whole"

    @property
    def exact_on_pieces(self) -> bool:
        return True

    def bind(self, layout: Layout) -> Compressor:
        return self.compressor.bind(layout)

    def omega(self, d: int) -> float | None:
        return self.compressor.omega(self.layout.size)

    def delta(self, d: int) -> float | None:
        return self.compressor.delta(self.layout.size)
