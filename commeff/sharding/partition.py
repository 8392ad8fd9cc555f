"""Rows that lie in pieces: where a rank's lies, and the parts by which ranks hold them, on the rank of a piece and on a
whole row that is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from commeff.compressors import Layout
from commeff.compressors.layout import Field, Ranks
from commeff.compressors.parts import Part
from commeff.sharding.collectives import Axis
from commeff.sharding.pieces import Shard
from commeff.sharding.row import Span

Homes = Mapping[str, tuple[int, ...]]  # the pipeline ranks that have each tensor; none where there are no pipelines


def lying(
    layout: Layout,
    cuts: Mapping[str, Shard | None],
    cutting: Sequence[Ranks],
    dealing: Sequence[Ranks] = (),
    homes: Homes | None = None,
    whole: Layout | None = None,
) -> Layout:
    """The layout of a rank's piece of a whole row.

    Parameters
    ----------
    layout : Layout
        Of the tensors that the rank holds.
    cuts : mapping of str to Shard or None
        Which part of a whole tensor each is; None: all of it.
    cutting, dealing : sequence of Ranks
        The ranks that hold the other parts of them, and those that hold others.
    homes : mapping of str to tuple of int, optional
        Which of those that hold others hold each.
    whole : Layout, optional
        Of the whole row, where ranks hold other tensors.
    """
    if whole is None:
        shapes = [(f.name, f.shape if (cut := cuts[f.name]) is None else cut.shape) for f in layout.fields]
        whole = Layout.of(shapes, [field.group for field in layout.fields])
    at = {field.name: field for field in whole.fields}
    pieces = []
    for field in layout.fields:
        cut, stages = cuts[field.name], 1 if homes is None else max(1, len(homes[field.name]))
        places = at[field.name].places if cut is None else cut.places(at[field.name].start)
        pieces.append((field.name, field.shape, places, stages * (1 if cut is None else cut.copies), stages))
    return whole.in_pieces(pieces, cutting, dealing)


def of_piece(
    layout: Layout, tensor: Axis, shard: Axis, homes: Homes | None = None, alike: bool = True
) -> tuple[Part, ...]:
    """The parts of the row that this rank updates, whose fields know at how many ranks they are.

    `alike` is whether the ranks that hold copies have them in the same part.
    """
    parts: dict[str, list[Field]] = {}
    for field in layout.fields:
        name = _home(field.copies // field.stages, tensor, () if homes is None else homes[field.name])
        name = name if shard.size == 1 else f"{name}, {shard.name} {shard.rank}"
        parts.setdefault(name, []).append(field)
    return tuple(replace(_part(name, parts[name], layout.cuts), alike=alike) for name in sorted(parts))


def of_whole(
    layout: Layout,
    cuts: Sequence[Mapping[str, Shard]],
    axis: Axis,
    homes: Homes | None = None,
    shares: Callable[[Layout], Sequence[Sequence[Span]]] | None = None,
) -> tuple[Part, ...]:
    """The same parts of the row of a whole model.

    Parameters
    ----------
    layout : Layout
        Of the whole row.
    cuts : sequence
        What each rank of the axis holds of each tensor.
    axis : Axis
        The tensor ranks.
    homes : mapping of str to tuple of int, optional
        The pipeline ranks that have each tensor.
    shares : callable, optional
        Which columns of a rank's row, of the given layout, each shard rank updates.
    """
    pieces = []
    for rank, held in enumerate(cuts):
        local = Layout.of([(f.name, held[f.name].sizes) for f in layout.fields])
        piece, tensor = lying(local, held, (axis,), whole=layout), Axis(axis.name, axis.size, rank)
        spans = [[(0, piece.d)]] if shares is None else shares(piece)
        for number, share in enumerate(spans):
            own = piece.pick(share)
            pieces.append((own, of_piece(own, tensor, Axis("shard", len(spans), number), homes)))
    return joined(pieces)


def joined(pieces: Iterable[tuple[Layout, Sequence[Part]]]) -> tuple[Part, ...]:
    """The parts of a whole row, from those of every rank's piece of it and the piece's layout."""
    parts: dict[str, Part] = {}
    for layout, partition in pieces:
        for part in partition:
            parts.setdefault(part.name, replace(part, spans=_spans(layout, part)))
    return tuple(parts[name] for name in sorted(parts))


def _spans(layout: Layout, part: Part) -> list[Span]:
    """Where a part's columns lie in the whole row."""
    runs = [run for a, b in part.spans for field in layout.slice(a, b).fields for run in field.places]
    starts = [(run.start + i * run.stride, run.length) for run in runs for i in range(run.times)]
    return [(start, start + length) for start, length in starts]


def _home(copies: int, axis: Axis, stages: Sequence[int]) -> str:
    """The ranks that hold a piece, in words."""
    at = f", pipeline {' and '.join(map(str, stages))}" if stages else ""
    if copies == axis.size:
        return f"everywhere{at}"
    first = axis.rank - axis.rank % copies
    return f"{axis.name} {first}{at}" if copies == 1 else f"{axis.name} {first} to {first + copies - 1}{at}"


def _part(name: str, fields: Sequence[Field], cut: bool) -> Part:
    layout = Layout.of([(field.name, field.shape) for field in fields])
    return Part(name, [(field.start, field.stop) for field in fields], layout, cut)
