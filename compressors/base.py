"""The interface of all compressors, and what those share that are made of another one, or that take one number of the
whole row, and then each coordinate by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from inspect import isabstract
from typing import ClassVar, Generic, Literal, Self, TypeVar, get_args

import torch
from torch import Tensor

from commeff.compressors.layout import Layout
from commeff.compressors.message import Message
from commeff.compressors.random import WorkerRandom

Scope = Literal["coordinate", "tensor", "whole"]
C = TypeVar("C", bound="Compressor")


class Compressor(ABC):
    """Turns vectors into a `Message`. A frozen dataclass: equal vectors and equal randomness give an equal message.

    Row i of the message depends on row i of the vectors and on row i of the randomness only. A compressor works on
    vectors of any length without being bound, except those that need the names of tensors, which say so.

    Attributes
    ----------
    data_dependent : whether the size of a message depends on the values of the vector. On meta tensors, which have no
        values, such a compressor gives the largest message that it can.
    """

    data_dependent: ClassVar[bool] = False

    @property
    @abstractmethod
    def scope(self) -> Scope:
        """Where a vector may be cut into blocks that are compressed one by one: anywhere, between tensors, nowhere."""

    @property
    def exact_on_pieces(self) -> bool:
        """Whether a row may lie in pieces on several ranks: each compresses its own, bound to the layout of it, to its
        piece of the whole row's message.
        """
        return self.scope == "coordinate"

    @property
    def summable(self) -> bool:
        """Whether messages may be added part by part on the way: decode(sum of parts) = sum of decoded messages."""
        return False

    def bind(self, layout: Layout) -> Compressor:
        """The compressor for vectors of this layout; ValueError if it cannot compress them."""
        return self

    @abstractmethod
    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        """The message for ``vectors`` (w, d). It may share memory with them: do not change them meanwhile."""

    @abstractmethod
    def omega(self, d: int) -> float | None:
        """The least known omega with E C(v) = v and E|C(v) - v|^2 <= omega |v|^2 in d dimensions; None if biased."""

    @abstractmethod
    def delta(self, d: int) -> float | None:
        """The largest known delta > 0 with E|C(v) - v|^2 <= (1 - delta)|v|^2 in d dimensions; None if there is none."""

    def absolute(self, d: int) -> float | None:
        """A bound on E|C(v) - v|^2 that holds whatever |v| is; None if there is none. A memory stays bounded by it."""
        return None

    @classmethod
    def samples(cls) -> list[Self]:
        """Small configurations on which the laws of `compressors.laws` run."""
        return [cls()]


@dataclass(frozen=True)
class CompressorWrapper(Compressor, ABC):
    """A compressor made of another, C: of the same vectors as C, and with its constants unless it says others.

    Parameters
    ----------
    compressor
        C.
    """

    compressor: Compressor

    @property
    def scope(self) -> Scope:
        return self.compressor.scope

    @property
    def exact_on_pieces(self) -> bool:
        return self.compressor.exact_on_pieces

    @property
    def summable(self) -> bool:
        return self.compressor.summable

    def bind(self, layout: Layout) -> Compressor:
        return replace(self, compressor=self.compressor.bind(layout))

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        return self.compressor.compress(vectors, random)

    def omega(self, d: int) -> float | None:
        return self.compressor.omega(d)

    def delta(self, d: int) -> float | None:
        return self.compressor.delta(d)

    @classmethod
    @abstractmethod
    def samples(cls) -> list[Self]: ...


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


def check_least(name: str, value: float | None, least: int = 1) -> None:
    """Refuse a value below `least`; None is one that was left out.

    >>> check_least("TopK: k", 0)
    Traceback (most recent call last):
    ValueError: TopK: k must be at least 1, got 0
    """
    if value is not None and not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def coarsest(*scopes: Scope) -> Scope:
    """The scope of a composition.

    >>> coarsest("coordinate", "tensor")
    'tensor'
    """
    return max(scopes, key=get_args(Scope).index)


def contraction(omega: float | None) -> float | None:
    """The delta of an unbiased compressor as it is: 1 - omega, where that is positive."""
    return 1 - omega if omega is not None and omega < 1 else None


def largest(omegas: Iterable[float | None]) -> float | None:
    """omega of pieces that are compressed one by one; None if any of them is biased."""
    values = list(omegas)
    return None if None in values else max(omega for omega in values if omega is not None)


def smallest(deltas: Iterable[float | None]) -> float | None:
    """delta of pieces that are compressed one by one; None if any of them is not contractive."""
    values = list(deltas)
    return None if None in values else min(delta for delta in values if delta is not None)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of scales and of arithmetic: float64 for float64 vectors, float32 for all others."""
    return torch.float64 if dtype is torch.float64 else torch.float32


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
        kinds = ScaledRows.__subclasses__()
        for kind in kinds:  # and the subclasses of these
            kinds += kind.__subclasses__()
        samples = [sample for kind in kinds if not isabstract(kind) for sample in kind.samples()]
        return [cls(sample, Layout.flat(24)) for sample in samples if sample.exact_on_pieces]
