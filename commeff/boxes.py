"""Tensors in boxes: which boxes of a model's tensors a process's columns are, and a tensor of which some are here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from commeff.compressors.layout import Layout

Shape = tuple[int, ...]
Span = tuple[int, int]


class Box(NamedTuple):
    """Columns [start, stop) of some of a process's, which are a box of a tensor.

    Attributes
    ----------
    tensor : str
        The name of the tensor.
    shape : tuple of int
        The shape of the whole tensor; (1,) if it is a single number.
    offsets, sizes : tuple of int
        The place and size of the box in it.
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
class ColumnMap:
    """A map of the columns that a process updates into the tensors of a model: here, of one that it has as a whole.

    Attributes
    ----------
    layout : Layout
        The tensors, or pieces of tensors, that the process computes with.
    spans : tuple of (int, int)
        The columns of these that it updates.

    Examples
    --------
    >>> whole = ColumnMap.of(Layout.of([("matrix", (2, 3)), ("vector", (2,))]))
    >>> [box[2:] for box in whole.boxes([(2, 7)])]
    [((0, 2), (1, 1), 0, 1), ((1, 0), (1, 3), 1, 4), ((0,), (1,), 4, 5)]
    """

    layout: Layout
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, layout: Layout) -> ColumnMap:
        """The map of a process that has whole models."""
        return cls(layout, ((0, layout.d),))

    @property
    def owned(self) -> ColumnMap:
        """The map without the tensors that another process is asked for."""
        return self

    @property
    def shapes(self) -> dict[str, Shape]:
        """The shapes of the whole tensors of which something is here."""
        return {field.name: field.shape or (1,) for field in self.layout.fields}

    def boxes(self, spans: Sequence[Span]) -> list[Box]:
        """The boxes that columns of the layout are, in their order, counted from the first of these columns."""
        boxes, column = list[Box](), 0
        for start, stop in spans:
            for field in self.layout.fields:
                first, last = max(field.start, start), min(field.stop, stop)
                for offsets, sizes in _stretch(field.shape or (1,), first - field.start, last - first):
                    boxes.append(Box(field.name, field.shape or (1,), offsets, sizes, column, column + prod(sizes)))
                    column += prod(sizes)
        return boxes


class Boxes:
    """A tensor of which some boxes are here.

    Parameters
    ----------
    shape : sequence of int
        The shape of the whole tensor.
    boxes : iterable of (offsets, Tensor)
        The boxes.

    Attributes
    ----------
    shape : tuple of int
        The shape of the whole tensor.
    boxes : dict of tuple of int to Tensor
        By their offsets in it, the boxes that are here.

    Examples
    --------
    >>> parts = Boxes((2, 3))
    >>> parts.put((0, 0), torch.ones(2, 2))
    >>> parts.put((0, 2), torch.zeros(2, 1))
    >>> parts.read((0, 1), (2, 2))
    tensor([[1., 0.],
            [1., 0.]])
    """

    def __init__(self, shape: Sequence[int], boxes: Sequence[tuple[Sequence[int], Tensor]] = ()) -> None:
        self.shape = tuple(shape)
        self.boxes = {tuple(offsets): box for offsets, box in boxes}

    @classmethod
    def of(cls, tensor: Tensor) -> Boxes:
        """A tensor that is here as a whole."""
        return cls(tensor.shape, [((0,) * tensor.ndim, tensor)])

    @property
    def dtype(self) -> torch.dtype:
        """The type of the boxes."""
        return next((box.dtype for box in self.boxes.values()), torch.get_default_dtype())

    def put(self, offsets: Sequence[int], box: Tensor) -> None:
        """Add a box. One that is held twice is one."""
        known = self.boxes.setdefault(tuple(offsets), box)
        if known is not box and not (known.shape == box.shape and torch.equal(known, box)):
            raise ValueError(
                f"what is saved under one name must be one tensor, got two different ones at {tuple(offsets)}: "
                "give memories that differ different names"
            )

    def read(self, offsets: Sequence[int], sizes: Sequence[int]) -> Tensor:
        """Any box of the tensor, put together from those that are here; a view of one that has all of it."""
        out, numbers = torch.empty(tuple(sizes) if 0 in sizes else 0, dtype=self.dtype), 0
        for at, box, first, last in self._common(offsets, sizes):
            common = box[tuple(slice(a - b, c - b) for a, b, c in zip(first, at, last, strict=True))]
            if common.shape == tuple(sizes):
                return common
            if not numbers:
                out = box.new_empty(tuple(sizes))
            out[tuple(slice(a - b, c - b) for a, b, c in zip(first, offsets, last, strict=True))] = common
            numbers += common.numel()
        if numbers != prod(sizes):
            raise ValueError(f"must have {prod(sizes)} numbers that are needed here, got {numbers}")
        return out

    def has(self, offsets: Sequence[int], sizes: Sequence[int]) -> bool:
        """Whether any of a box is here."""
        return any(True for _ in self._common(offsets, sizes))

    def _common(self, offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[Shape, Tensor, Shape, Shape]]:
        """The boxes that have some of one, with the first place that they have in common and the one after the last."""
        for at, box in self.boxes.items():
            first = tuple(max(a, b) for a, b in zip(offsets, at, strict=True))
            last = tuple(min(a + s, b + t) for a, s, b, t in zip(offsets, sizes, at, box.shape, strict=True))
            if all(a < b for a, b in zip(first, last, strict=True)):
                yield at, box, first, last

    @property
    def complete(self) -> bool:
        """Whether all of the tensor is here; boxes do not overlap."""
        return sum(box.numel() for box in self.boxes.values()) == prod(self.shape)

    def whole(self) -> Tensor:
        """All of the tensor."""
        return self.read((0,) * len(self.shape), self.shape)

    def plain(self) -> list[Any]:
        """The tensor as lists, from which `Boxes(*plain)` makes it again."""
        return [list(self.shape), [[list(offsets), box] for offsets, box in self.boxes.items()]]


def _stretch(shape: Shape, start: int, length: int) -> Iterator[tuple[Shape, Shape]]:
    """Boxes that together are `length` neighbouring places of a tensor, in order: offsets and sizes.

    >>> list(_stretch((3, 4), 2, 9))
    [((0, 2), (1, 2)), ((1, 0), (1, 4)), ((2, 0), (1, 3))]
    """
    if length <= 0:
        return
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
