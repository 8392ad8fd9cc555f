"""The parts of a row: the columns that the same ranks hold, on the rank and on a whole row that is simulated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from commeff.boxes import Span
from commeff.compressors import Field, Layout
from commeff.sharding.collectives import Axis
from commeff.sharding.layout import ShardedLayout


@dataclass(frozen=True, eq=False)
class Part:
    """Columns that lie at the same ranks.

    Attributes
    ----------
    name : str
        Those ranks, in words: "tensor 1", or "everywhere".
    spans : sequence of (int, int)
        The columns, as first ones and those after the last.
    layout : Layout
        The layout of the columns one after the other.
    sharded : bool
        Whether tensors are sharded, here or elsewhere in the row.
    alike : bool
        Whether the ranks that hold copies of its columns have them in the same part.
    """

    name: str
    spans: Sequence[Span]
    layout: Layout
    sharded: bool = True
    alike: bool = True

    def read(self, v: Tensor) -> Tensor:
        """(w, d) -> (w, columns)."""
        return torch.cat([v[:, a:b] for a, b in self.spans], dim=1)

    def write(self, out: Tensor, columns: Tensor) -> None:
        """The inverse of `read`."""
        for (a, b), piece in zip(self.spans, columns.split([b - a for a, b in self.spans], dim=1), strict=True):
            out[:, a:b] = piece


def parts_of(layout: ShardedLayout, ranks: Mapping[str, str], alike: bool = True) -> tuple[Part, ...]:
    """The columns of a rank's row by the ranks that hold them, which are given in words for each tensor."""
    fields: dict[str, list[Field]] = {}
    for field in layout.fields:
        if field.start < field.stop:
            fields.setdefault(ranks[field.name], []).append(field)
    layouts = {name: Layout.of([(field.name, field.shape) for field in group]) for name, group in fields.items()}
    return tuple(
        Part(name, [(field.start, field.stop) for field in fields[name]], layouts[name], layout.shards_tensors, alike)
        for name in sorted(fields)
    )


def ranks_in_words(
    layout: ShardedLayout, tensor: Axis, shard: Axis, stages: Mapping[str, Sequence[int]] | None = None
) -> dict[str, str]:
    """The ranks that update each of the tensors that this rank updates: "everywhere", or "tensor 1, shard 0"."""
    words = {}
    for field in layout.fields:
        copies = layout.copies(field.name)
        first = tensor.rank - tensor.rank % copies
        place = f"{tensor.name} {first}" if copies == 1 else f"{tensor.name} {first} to {first + copies - 1}"
        at = [place if copies < tensor.size else "everywhere"]
        if stages and stages[field.name]:
            at.append(f"pipeline {' and '.join(map(str, stages[field.name]))}")
        if shard.size > 1:
            at.append(f"{shard.name} {shard.rank}")
        words[field.name] = ", ".join(at)
    return words


def joined(ranks: Iterable[tuple[Layout, Sequence[Part]]]) -> tuple[Part, ...]:
    """The parts of a whole row, from those of every rank and the rank's layout."""
    parts: dict[str, Part] = {}
    for layout, partition in ranks:
        for part in partition:
            parts.setdefault(part.name, replace(part, spans=_whole_spans(layout, part)))
    return tuple(parts[name] for name in sorted(parts))


def _whole_spans(layout: Layout, part: Part) -> list[Span]:
    """The places of a part's columns in the whole row."""
    places = [layout.slice(a, b).places for a, b in part.spans]
    runs = [run for known in places if known is not None for run in known.runs]
    starts = [(run.start + i * run.stride, run.length) for run in runs for i in range(run.times)]
    return [(start, start + length) for start, length in starts]
