"""Where in a strategy each of its memories is, and under which names it is saved and found by another layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from commeff.boxes import ColumnMap, Shape, Span


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
    piece : str
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
    piece: str = ""

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
        """A key that no other place in the strategy has."""
        return f"{self.path} {self.spans}"

    def child(self, part: str, *, server: bool = False) -> Address:
        """One attribute deeper."""
        path, name = (f"{above}/{part}" if above else part for above in (self.path, self.name))
        return replace(self, path=path, name=name, server=self.server or server)

    def block(self, part: str, spans: Iterable[Span]) -> Address:
        """One attribute deeper, in a block of columns with a memory of its own."""
        return replace(self.part(spans), path=self.child(part).path)

    def part(self, spans: Iterable[Span]) -> Address:
        """The address of some of the columns, counted from the first of these."""
        return replace(self, spans=tuple(inner for span in spans for inner in self._within(*span)))

    def _within(self, start: int, stop: int) -> Iterator[Span]:
        for first, last in self.spans:
            if start < (width := last - first) and stop > 0:
                yield first + max(start, 0), first + min(stop, width)
            start, stop = start - width, stop - width


class NamedBox(NamedTuple):
    """The place where a part of a memory is saved.

    Attributes
    ----------
    name, shape : str, tuple of int
        The name and shape of the whole tensor.
    offsets, sizes : tuple of int
        The place and size of the box in it.
    part : tuple
        An index: the part, of the memory.
    """

    name: str
    shape: Shape
    offsets: Shape
    sizes: Shape
    part: tuple[Any, ...] = (...,)


class BoxNames:
    """The places where a process's memories are saved.

    Parameters
    ----------
    where : ColumnMap
        The map of the process's columns.
    workers, n : sequence of int, int
        Its workers, and how many there are in all; unless given, it has all that there are.
    """

    def __init__(self, where: ColumnMap, workers: Sequence[int] = (), n: int = 0) -> None:
        self._workers, self._n, self._boxes = workers, n, cache(where.boxes)
        self.of_one_process = not n

    def of(self, at: Address, shape: Shape, of_workers: bool) -> Iterator[NamedBox]:
        """The boxes of a memory: by tensors of the model if it is of columns, else as it is."""
        n, first = self._axis(at, shape[0]) if of_workers else ((), ())
        sizes = shape[of_workers:]
        if len(shape) > 1 and shape[-1] == at.width:
            between = sizes[:-1]
            for box in self._boxes(at.spans):
                yield NamedBox(
                    f"{at.name}/{box.tensor}",
                    (*n, *between, *box.shape),
                    (*first, *(0 for _ in between), *box.offsets),
                    (*shape[:-1], *box.sizes),
                    (..., slice(box.start, box.stop)),
                )
        else:
            yield NamedBox(f"{at.path}{at.piece}", (*n, *sizes), (*first, *(0 for _ in sizes)), shape)

    def numbers(self, at: Address, name: str, shape: Shape) -> Iterator[NamedBox]:
        """The boxes of what an optimizer remembers of tensors, not by columns: saved with each of them, and with each
        block that has some of it.
        """
        n, first = self._axis(at, shape[0])
        for tensor in self.tensors(at):
            offsets = (*first, *(0 for _ in shape[1:]))
            yield NamedBox(f"{at.path}/{name}/{tensor}", (*n, *shape[1:]), offsets, shape)

    def tensors(self, at: Address) -> dict[str, Shape]:
        """The shapes of the tensors whose columns these are, by their names."""
        return {box.tensor: box.shape for box in self._boxes(at.spans)}

    def rows(self, at: Address, saved: int) -> int:
        """The number of rows this process has of those that were saved."""
        return saved if at.server or self.of_one_process else len(self._workers)

    def _axis(self, at: Address, rows: int) -> tuple[Shape, Shape]:
        """The number of rows, and the first of those that are here."""
        return ((rows,), (0,)) if at.server or self.of_one_process else ((self._n,), (self._workers[0],))


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


class RowSwap:
    """A swap of what belongs to workers; what is the server's, or equal on every process, stays."""

    def swap(self, key: str, value: Tensor) -> Tensor:
        """A memory with a leading worker axis, which nothing else has this key of."""
        return value

    def rows(self, at: Address, value: Any) -> Any:
        """A memory with a leading worker axis, or the server's."""
        return value if at.server else self.swap(at.key, value)

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What an optimizer remembers of some tensors, by its names."""
        return {name: self.swap(f"{at.key}/{name}", value) for name, value in values.items()}

    def shared(self, at: Address, value: Any) -> Any:
        """As it is."""
        return value

    def schedule(self, at: Address, value: Any) -> Any:
        """As it is."""
        return value
