"""Where the named tensors of a model lie in its flat vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from math import prod
from typing import NamedTuple

from torch import Tensor


class Field(NamedTuple):
    """One tensor of the model: columns ``start`` to ``stop`` of the flat vector, in parameter group ``group``.

    Where a vector lies in pieces on several ranks, ``copies`` of them hold this one.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int
    group: int = 0
    copies: int = 1


def total(columns: Tensor) -> Tensor:
    """(..., c) -> (..., 1): the sum over columns."""
    return columns.sum(-1, keepdim=True)


def alone(values: Tensor) -> Tensor:
    """Of a vector that lies in one piece: what has been added up is the sum."""
    return values


@dataclass(frozen=True)
class Layout:
    """The fields of a vector of d coordinates, consecutive and without gaps.

    Built by `flat` (a bare vector) or `of` (named shapes); ``slice`` gives the layout of a block of columns. A vector
    may lie in pieces on several ranks; then ``add`` gives, at each of them, the sum of what they have.

    >>> layout = Layout.of([("weight", (2, 3)), ("bias", (2,))])
    >>> layout.d, layout.boundaries
    (8, (0, 6, 8))
    >>> layout.slice(4, 8).fields[0]
    Field(name='weight', shape=(2,), start=0, stop=2, group=0, copies=1)
    >>> layout.cuts_tensor(4, 8), layout.cuts_tensor(6, 8)
    (True, False)
    """

    fields: tuple[Field, ...]
    add: Callable[[Tensor], Tensor] = field(default=alone, repr=False)  # an address differs from process to process

    @classmethod
    def flat(cls, d: int) -> Layout:
        """A bare vector of d coordinates: one anonymous field.

        >>> Layout.flat(5).fields
        (Field(name='', shape=(5,), start=0, stop=5, group=0, copies=1),)
        """
        return cls.of([("", (d,))])

    @classmethod
    def of(cls, named_shapes: Iterable[tuple[str, Sequence[int]]], groups: Sequence[int] | None = None) -> Layout:
        """Consecutive fields in the order given; ``groups[i]`` is the parameter group of field i (0 by default)."""
        named = [(name, tuple(int(side) for side in shape)) for name, shape in named_shapes]
        groups = [0] * len(named) if groups is None else list(groups)
        if len(groups) != len(named):
            raise ValueError(f"groups must have one entry for each of the {len(named)} tensors, got {len(groups)}")
        fields, start = [], 0
        for (name, shape), group in zip(named, groups, strict=True):
            fields.append(Field(name, shape, start, start + prod(shape), group))
            start += prod(shape)
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
            raise ValueError(
                f"columns must satisfy 0 <= start <= stop <= d = {self.d}, got [{start}, {stop}): the layout has no "
                "others"
            )
        overlapping = (field for field in self.fields if max(field.start, start) < min(field.stop, stop))
        return replace(self, fields=tuple(_piece(field, start, stop) for field in overlapping))

    def pick(self, spans: Iterable[tuple[int, int]]) -> Layout:
        """The layout of several blocks of columns, one after the other.

        >>> layout = Layout.of([("weight", (2, 3)), ("bias", (2,))])
        >>> [(field.name, field.start, field.stop) for field in layout.pick([(4, 7), (0, 1)]).fields]
        [('weight', 0, 2), ('bias', 2, 3), ('weight', 3, 4)]
        """
        fields: list[Field] = []
        begin = 0
        for start, stop in spans:
            for piece in self.slice(start, stop).fields:
                fields.append(piece._replace(start=piece.start + begin, stop=piece.stop + begin))
            begin += stop - start
        return replace(self, fields=tuple(fields))

    def in_pieces(self, copies: Sequence[int], add: Callable[[Tensor], Tensor]) -> Layout:
        """The layout of one of several ranks' pieces: field i is at ``copies[i]`` ranks."""
        fields = (field._replace(copies=count) for field, count in zip(self.fields, copies, strict=True))
        return Layout(tuple(fields), add)

    def row_sum(self, vectors: Tensor, of: Callable[[Tensor], Tensor] = total) -> Tensor:
        """(w, 1): what ``of`` gives for blocks of columns (w, c), summed over all that belongs to a row.

        What several ranks hold counts once: the sum that all others would have it add to is that of the whole vector.

        Parameters
        ----------
        vectors : (w, d)
            The rows, or this rank's pieces of them.
        of : callable
            Takes columns (w, c) to (w, 1), as a sum over them: the columns' own sum unless given.

        Examples
        --------
        >>> from torch import ones
        >>> pieces = Layout.of([("a", (3,)), ("b", (2,))]).in_pieces([1, 2], add=lambda own: 2 * own)  # equal ranks
        >>> pieces.row_sum(ones(1, 5))  # 2 x 3 + 2
        tensor([[8.]])
        """
        if self.add is alone:
            return of(vectors)
        runs = (list(run) for _, run in groupby(self.fields, key=lambda field: field.copies))
        return self.add(
            sum((of(vectors[:, r[0].start : r[-1].stop]) / r[0].copies for r in runs), vectors.new_zeros(1))
        )


def _piece(field: Field, start: int, stop: int) -> Field:
    """The part of a field that lies in columns [start, stop), counted from ``start``."""
    first, last = max(field.start, start), min(field.stop, stop)
    shape = field.shape if (first, last) == (field.start, field.stop) else (last - first,)
    return Field(field.name, shape, first - start, last - start, field.group, field.copies)
