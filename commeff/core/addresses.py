"""Where in a strategy each of its memories is, so that it can be saved by name and put back over another layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

Span = tuple[int, int]


@dataclass(frozen=True)
class Address:
    """A place in a strategy, and the columns of the process's row that its memories are about.

    Attributes
    ----------
    spans : tuple of (int, int)
        Those columns, one span after the other.
    path : str
        The attributes that lead there.
    name : str
        The same without the numbers of blocks, which their columns tell apart.
    server : bool
        Whether rows are the server's, not the workers'.
    apart : str
        Where columns are a vector of their own: the ranks that hold them.

    Examples
    --------
    >>> at = Address.of(10).child("gradients").part([(2, 4), (6, 9)])
    >>> at.child("error").name, at.width, at.part([(1, 3)]).spans
    ('gradients/error', 5, ((3, 4), (6, 7)))
    """

    spans: tuple[Span, ...]
    path: str = ""
    name: str = ""
    server: bool = False
    apart: str = ""

    @classmethod
    def of(cls, d: int) -> Address:
        """The top of a strategy over rows of d columns."""
        return cls(((0, d),))

    @property
    def width(self) -> int:
        """The number of columns."""
        return sum(stop - start for start, stop in self.spans)

    @property
    def key(self) -> str:
        """What no other place in the strategy has."""
        return f"{self.path} {self.spans}"

    def child(self, part: str, *, server: bool = False) -> Address:
        """One attribute deeper."""
        path, name = (f"{above}/{part}" if above else part for above in (self.path, self.name))
        return replace(self, path=path, name=name, server=self.server or server)

    def block(self, part: str, spans: Iterable[Span]) -> Address:
        """One attribute deeper, in a block of columns with a memory of its own."""
        return replace(self.part(spans), path=self.child(part).path)

    def part(self, spans: Iterable[Span]) -> Address:
        """The same about some of the columns, counted from the first of these."""
        return replace(self, spans=tuple(found for span in spans for found in self._within(*span)))

    def _within(self, start: int, stop: int) -> Iterator[Span]:
        for first, last in self.spans:
            if start < (width := last - first) and stop > 0:
                yield first + max(start, 0), first + min(stop, width)
            start, stop = start - width, stop - width


class Swap(Protocol):
    """Takes each memory of a strategy and gives back what it is to be from now on: the same object to leave it."""

    def rows(self, at: Address, value: Any) -> Any:
        """A memory with a leading worker axis, or the server's."""

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What an optimizer remembers of the tensors whose columns these are, by its names: (w,) or (w, ...) each."""

    def shared(self, at: Address, value: Any) -> Any:
        """A memory that is equal on every process."""

    def schedule(self, at: Address, value: Any) -> Any:
        """Where a learning rate stands, which goes on even where memories begin anew."""


class RowSwap(ABC):
    """A swap of what belongs to workers; what is equal on every process stays."""

    @abstractmethod
    def rows(self, at: Address, value: Any) -> Any:
        """A memory with a leading worker axis, or the server's."""

    @abstractmethod
    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What an optimizer remembers of some tensors, by its names."""

    def shared(self, at: Address, value: Any) -> Any:
        """As it is."""
        return value

    def schedule(self, at: Address, value: Any) -> Any:
        """As it is."""
        return value
