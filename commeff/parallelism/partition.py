"""The parts of a row by which ranks hold them: on the rank of a piece, and on a whole row that is simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import torch

from commeff.compressors import Layout
from commeff.compressors.parts import Part
from commeff.parallelism.collectives import Axis
from commeff.parallelism.pieces import Cut

Named = tuple[str, tuple[int, ...], list[tuple[int, int]]]  # a tensor's name, its piece's shape, its columns


Homes = Mapping[str, tuple[int, ...]]  # the pipeline ranks that have each tensor; none where there are no pipelines


def of_piece(layout: Layout, tensor: Axis, shard: Axis, homes: Homes) -> tuple[Part, ...]:
    """The parts of the row that this rank updates, whose fields know at how many ranks they are."""
    parts: dict[str, list[Named]] = {}
    for field in layout.fields:
        stages = homes[field.name]
        name = _home(field.copies // max(1, len(stages)), tensor, stages)
        name = name if shard.size == 1 else f"{name}, {shard.name} {shard.rank}"
        parts.setdefault(name, []).append((field.name, field.shape, [(field.start, field.stop)]))
    return tuple(_part(name, parts[name]) for name in sorted(parts))


def of_whole(
    layout: Layout, cuts: Sequence[Mapping[str, Cut]], axis: Axis, homes: Homes | None = None
) -> tuple[Part, ...]:
    """The same parts of the row of a whole model: `cuts[r]` is what rank r of the axis holds of each tensor."""
    parts: dict[str, list[Named]] = {}
    for rank, held in enumerate(cuts):
        place = Axis(axis.name, axis.size, rank)
        new: dict[str, list[Named]] = {}
        for field in layout.fields:
            cut = held[field.name]
            piece = cut.take(torch.arange(field.start, field.stop).view(field.shape))
            stages = () if homes is None else homes[field.name]
            new.setdefault(_home(cut.copies, place, stages), []).append(
                (field.name, tuple(piece.shape), list(_runs(piece)))
            )
        parts = new | parts
    return tuple(_part(name, parts[name]) for name in sorted(parts))


def _home(copies: int, axis: Axis, stages: Sequence[int]) -> str:
    """The ranks that hold a piece, in words."""
    at = f", pipeline {' and '.join(map(str, stages))}" if stages else ""
    if copies == axis.size:
        return f"everywhere{at}"
    first = axis.rank - axis.rank % copies
    return f"{axis.name} {first}{at}" if copies == 1 else f"{axis.name} {first} to {first + copies - 1}{at}"


def _runs(places: torch.Tensor) -> Iterator[tuple[int, int]]:
    numbered = enumerate(places.flatten().tolist())
    for _, run in groupby(numbered, key=lambda pair: pair[1] - pair[0]):
        columns = [column for _, column in run]
        yield columns[0], columns[-1] + 1


def _part(name: str, tensors: list[Named]) -> Part:
    layout = Layout.of([(tensor, shape) for tensor, shape, _ in tensors])
    return Part(name, [span for _, _, spans in tensors for span in spans], layout)
