"""Which boxes of whole tensors a process's columns are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from commeff.compressors import Layout

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


def boxes(layout: Layout, spans: Sequence[Span]) -> list[Box]:
    """The boxes that columns of a layout are, counted from the first of these columns.

    >>> layout = Layout.of([("matrix", (2, 3)), ("vector", (2,))])
    >>> [box[2:] for box in boxes(layout, [(2, 7)])]
    [((0, 2), (1, 1), 0, 1), ((1, 0), (1, 3), 1, 4), ((0,), (1,), 4, 5)]
    """
    found, begin = [], 0
    whole = {field.name: field for field in layout.fields}
    for start, stop in spans:
        for field in layout.fields:
            first, last = max(field.start, start), min(field.stop, stop)
            if first >= last:
                continue
            at, shape = begin + first - start, whole[field.name].shape or (1,)
            for offsets, sizes in _stretch(shape, first - field.start, last - first):
                found.append(Box(field.name, shape, offsets, sizes, at, at + prod(sizes)))
                at += prod(sizes)
        begin += stop - start
    return found


def _stretch(shape: Shape, start: int, length: int) -> Iterator[tuple[Shape, Shape]]:
    """Boxes that together are `length` neighbouring places of a tensor, in order: offsets and sizes.

    >>> list(_stretch((3, 4), 2, 9))
    [((0, 2), (1, 2)), ((1, 0), (1, 4)), ((2, 0), (1, 3))]
    """
    inner = prod(shape[1:])
    if len(shape) == 1 or (start % inner == 0 and length % inner == 0):
        none = (0,) * (len(shape) - 1)
        yield (start // inner, *none), (length // inner, *shape[1:])
        return
    row, first = divmod(start, inner)
    rows = (length + first) // inner  # whole ones, the first included that may lack its begin
    head = min(inner - first, length) if first or not rows else 0
    if head:
        yield from (((row, *o), (1, *s)) for o, s in _stretch(shape[1:], first, head))
        start, length, row = start + head, length - head, row + 1
    if length >= inner:
        yield from _stretch(shape, row * inner, length - length % inner)
        row, length = row + length // inner, length % inner
    if length:
        yield from (((row, *o), (1, *s)) for o, s in _stretch(shape[1:], 0, length))
