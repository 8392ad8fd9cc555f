"""Where the named tensors of a model lie in its flat vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from operator import index
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from commeff.compressors.places import Places


class Field(NamedTuple):
    """One tensor of the model: columns ``start`` to ``stop`` of the flat vector, in parameter group ``group``."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    group: int = 0


class Peers(Protocol):
    """Processes that hold other columns of the same vectors.

    Attributes
    ----------
    name : str
        What they are called.
    bytes : float
        What this process has sent to the others.
    """

    name: str
    bytes: float

    def reduce(self, x: Tensor, op: Literal["sum", "max"]) -> Tensor:
        """The sum, or the largest, of what they have, at each of them."""


def total(columns: Tensor) -> Tensor:
    """(..., c) -> (..., 1): the sum over columns."""
    return columns.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Layout:
    """The fields of a vector of d coordinates, consecutive and without gaps.

    Built by `flat` (a bare vector) or `of` (named shapes); ``slice`` gives the layout of a block of columns.

    A process may hold some columns of a vector only: its layout is of another class, which knows the `whole`, and which
    `places` of it are here. What follows `places` below is of the whole vector then.

    Attributes
    ----------
    fields : tuple of Field
        The tensors, or what is here of them.
    origin : int
        The coordinate of the first column in the model's vector.

    Examples
    --------
    >>> layout = Layout.of([("weight", (2, 3)), ("bias", (2,))])
    >>> layout.d, layout.boundaries
    (8, (0, 6, 8))
    >>> [(field.name, field.shape, field.start, field.stop) for field in layout.slice(4, 8).fields]
    [('weight', (2,), 0, 2), ('bias', (2,), 2, 4)]
    >>> layout.cuts_tensor(4, 8), layout.cuts_tensor(6, 8)
    (True, False)
    """

    fields: tuple[Field, ...]
    origin: int = 0

    @classmethod
    def flat(cls, d: int) -> Layout:
        """A bare vector of d coordinates: one anonymous field.

        >>> Layout.flat(5).fields
        (Field(name='', shape=(5,), start=0, stop=5, group=0),)
        """
        return cls.of([("", (d,))])

    @classmethod
    def of(cls, named_shapes: Iterable[tuple[str, Sequence[int]]], groups: Sequence[int] | None = None) -> Layout:
        """Consecutive fields in the order given; ``groups[i]`` is the parameter group of field i (0 by default)."""
        named = [(name, _whole(name, shape)) for name, shape in named_shapes]
        names = [name for name, _ in named]
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"fields must have names of their own, got {twice!r} twice: memories are found by them")
        groups = [0] * len(named) if groups is None else list(groups)
        if len(groups) != len(named):
            raise ValueError(f"groups must have one entry for each of the {len(named)} tensors, got {len(groups)}")
        fields, start = [], 0
        for (name, shape), group in zip(named, groups, strict=True):
            size = prod(shape)
            fields.append(Field(name, shape, start, start + size, group))
            start += size
        return cls(tuple(fields))

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return self.fields[-1].stop if self.fields else 0

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Columns where a block may begin or end without cutting a tensor."""
        return (0, *(field.stop for field in self.fields))

    def cuts_tensor(self, start: int, stop: int) -> bool:
        """Whether the block of columns [start, stop) contains part of a tensor but not all of it."""
        return not {start, stop} <= set(self.boundaries)

    def blocks(self, most: float, last: float) -> list[tuple[int, int]]:
        """Blocks of whole tensors, of about ``most`` columns each; of several, the last has at most ``last``.

        >>> Layout.of([("a", (2,)), ("b", (3,)), ("c", (1,))]).blocks(4, 1)
        [(0, 2), (2, 5), (5, 6)]
        """
        if self.d <= most:
            return [(0, self.d)]
        cuts, end, limit = [self.d], self.d, min(most, last)
        for tensor in reversed(self.fields):
            if end - tensor.start > limit and tensor.stop < end:
                end, limit = tensor.stop, most
                cuts.append(end)
        return list(pairwise([0, *reversed(cuts)]))

    def slice(self, start: int, stop: int) -> Layout:
        """The layout of columns [start, stop), counted from 0; a tensor that is cut becomes a flat piece.

        Tensors without elements are left out.
        """
        if not 0 <= start <= stop <= self.d:
            raise ValueError(f"columns must satisfy 0 <= start <= stop <= d = {self.d}, got [{start}, {stop})")
        overlapping = (field for field in self.fields if max(field.start, start) < min(field.stop, stop))
        fields = tuple(_piece(field, start, stop) for field in overlapping)
        return replace(self, fields=fields, origin=self.origin + start)

    @property
    def whole(self) -> Layout:
        """The layout of the whole vector."""
        return self

    @property
    def size(self) -> int:
        """The number of coordinates of the whole vector."""
        return self.whole.d

    @property
    def tensors(self) -> tuple[Field, ...]:
        """The whole tensors of which this process or its peers for these tensors have something."""
        return self.fields

    @property
    def shards_tensors(self) -> bool:
        """Whether peers hold other numbers of the same tensors."""
        return False

    @property
    def peers(self) -> Sequence[Peers]:
        """The processes that hold the rest of the vector."""
        return ()

    @property
    def places(self) -> Places | None:
        """Where the columns lie in the model's vector; None of a vector that is here as a whole."""
        return None

    def copies(self, name: str) -> int:
        """The number of peers for a tensor, with this process, that hold what is here of it."""
        return 1

    def spans(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Where columns [start, stop) of the whole vector are here: none, one span, or more if order is another."""
        return [(start, stop)]

    def within(self, start: int, stop: int) -> Layout:
        """The layout of columns [start, stop) of the whole vector, of which this process may have none."""
        return self.slice(start, stop)

    def row_sum(self, vectors: Tensor, of: Callable[[Tensor], Tensor] = total) -> Tensor:
        """(w, 1): what ``of`` gives for blocks of columns (w, c), summed over all that belongs to a row.

        What several processes hold counts once.

        Parameters
        ----------
        vectors : (w, d)
            The rows, or what is here of them.
        of : callable
            Takes columns (w, c) to (w, 1), as a sum over them: the columns' own sum unless given.
        """
        return of(vectors)

    def row_max(self, largest: Tensor) -> Tensor:
        """(w, 1): the largest number of a row, of the largest here."""
        return largest

    def row_cat(self, shares: Tensor) -> Tensor:
        """(r, c): the sum of what peers for the same tensors have, each in its place."""
        return shares


def one_kind(tensors: Iterable[Tensor]) -> tuple[torch.dtype, torch.device]:
    """The dtype and device of tensors that are to lie in one vector."""
    kinds = {(tensor.dtype, tensor.device) for tensor in tensors}
    if len(kinds) != 1:
        raise ValueError(
            "trainable parameters must have one dtype and device, and be at least one, got "
            f"{len(kinds)} kinds {sorted(map(str, kinds))}: they lie in one tensor"
        )
    return kinds.pop()


def _whole(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape, whose sides must be whole numbers of at least 0."""
    try:
        sides = tuple(map(index, shape))
    except TypeError:
        sides = (-1,)
    if any(side < 0 for side in sides):
        subject = f"the shape of {name!r}" if name else "the shape of a vector"
        raise ValueError(f"{subject} must be whole numbers of at least 0, got {tuple(shape)}")
    return sides


def _piece(field: Field, start: int, stop: int) -> Field:
    """The part of a field that lies in columns [start, stop), counted from ``start``."""
    first, last = max(field.start, start), min(field.stop, stop)
    if (first, last) == (field.start, field.stop):
        return field._replace(start=first - start, stop=last - start)
    return field._replace(shape=(last - first,), start=first - start, stop=last - start)
