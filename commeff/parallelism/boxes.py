"""Which boxes of whole tensors a process's columns are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from torch import nn

from commeff.compressors import Layout
from commeff.parallelism.collectives import Axis
from commeff.parallelism.layers import homes_of
from commeff.parallelism.pieces import Cut

Shape = tuple[int, ...]
Span = tuple[int, int]


class Box(NamedTuple):
    """Columns [start, stop) of some of a process's, which are a box of a tensor.

    Attributes
    ----------
    tensor : str
        The name of the tensor.
    shape : tuple of int
        Of the whole tensor; (1,) if it is a single number.
    offsets, sizes : tuple of int
        Of the box in it.
    start, stop : int
        The columns.
    """

    tensor: str
    shape: Shape
    offsets: Shape
    sizes: Shape
    start: int
    stop: int


@dataclass(frozen=True)
class Whereabouts:
    """Where the columns that a process updates lie in the whole tensors of a model.

    Attributes
    ----------
    layout : Layout
        Of the tensors, or pieces of tensors, that the process computes with.
    spans : tuple of (int, int)
        The columns of these that it updates.
    cuts : dict of str to Cut
        Which parts of the whole the pieces are.
    borrowed : frozenset of str
        Tensors that another process is asked for, where several have them.
    left_out : frozenset of str
        Tensors that have no boxes here.

    Examples
    --------
    >>> rank = Whereabouts.of(Layout.of([("matrix", (2, 3)), ("vector", (2,))]))
    >>> [box[2:] for box in rank.boxes([(2, 7)])]
    [((0, 2), (1, 1), 0, 1), ((1, 0), (1, 3), 1, 4), ((0,), (1,), 4, 5)]
    """

    layout: Layout
    spans: tuple[Span, ...]
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    borrowed: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()

    @classmethod
    def of(cls, layout: Layout) -> Whereabouts:
        """Of a process that has whole models."""
        return cls(layout, ((0, layout.d),))

    @classmethod
    def on_rank(
        cls, layout: Layout, parameters: Mapping[str, nn.Parameter], spans: Sequence[Span], pipeline: Axis
    ) -> Whereabouts:
        """Of a rank that computes with these parameters, in the layout's order."""
        cuts = {n: cut for n, p in parameters.items() if (cut := getattr(p, "cut", None)) is not None}
        homes = {name: homes_of(parameter, pipeline) for name, parameter in parameters.items()}
        borrowed = frozenset(name for name, ranks in homes.items() if ranks and ranks[0] != pipeline.rank)
        return cls(layout, tuple(spans), cuts, borrowed)

    @property
    def lent(self) -> Whereabouts:
        """Without the tensors that another process is asked for."""
        return replace(self, left_out=self.borrowed)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Of the whole tensors of which something is here."""
        return {
            f.name: self.cuts[f.name].whole(f.shape) if f.name in self.cuts else f.shape for f in self.layout.fields
        }

    def boxes(self, spans: Sequence[Span]) -> list[Box]:
        """The boxes that columns of the layout are, in their order, counted from the first of these columns."""
        found, at, shapes = list[Box](), 0, self.shapes
        for start, stop in spans:
            for piece in self.layout.fields:
                first, last = max(piece.start, start), min(piece.stop, stop)
                if first >= last:
                    continue
                if piece.name in self.left_out:
                    at += last - first
                    continue
                for offsets, sizes in _stretch(piece.shape or (1,), first - piece.start, last - first):
                    for there, size in _in_whole(self.cuts.get(piece.name), offsets, sizes):
                        found.append(Box(piece.name, shapes[piece.name] or (1,), there, size, at, at + prod(size)))
                        at += prod(size)
        return found


def _in_whole(cut: Cut | None, offsets: Shape, sizes: Shape) -> Iterator[tuple[Shape, Shape]]:
    """A box of a piece as boxes of the whole: one for each run of places that it reaches into."""
    if cut is None:
        yield offsets, sizes
        return
    dim, (first, size) = cut.dim, (offsets[cut.dim], sizes[cut.dim])
    last = first + size
    for start, stop in cut.runs:
        a, b = max(first, 0), min(last, stop - start)
        if a < b:
            yield (*offsets[:dim], start + a, *offsets[dim + 1 :]), (*sizes[:dim], b - a, *sizes[dim + 1 :])
        first, last = first - (stop - start), last - (stop - start)


def _stretch(shape: Shape, start: int, length: int) -> Iterator[tuple[Shape, Shape]]:
    """Boxes that together are `length` neighbouring places of a tensor, in order: offsets and sizes.

    >>> list(_stretch((3, 4), 2, 9))
    [((0, 2), (1, 2)), ((1, 0), (1, 4)), ((2, 0), (1, 3))]
    """
    inner = prod(shape[1:])
    if start % inner == 0 and length % inner == 0:
        none = (0,) * (len(shape) - 1)
        yield (start // inner, *none), (length // inner, *shape[1:])
        return
    row, first = divmod(start, inner)
    if first or length < inner:
        head = min(inner - first, length)
        yield from (((row, *offsets), (1, *sizes)) for offsets, sizes in _stretch(shape[1:], first, head))
        start, length = start + head, length - head
    rows = length - length % inner
    if rows:
        yield from _stretch(shape, start, rows)
    if length - rows:
        yield from _stretch(shape, start + rows, length - rows)
