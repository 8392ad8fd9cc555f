"""What a rank holds of its worker's vector: the layout of its shards of tensors, and which boxes of these they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Any, Literal

from torch import Tensor, nn

from commeff.boxes import Box, ColumnMap, Shape, Span
from commeff.compressors import Field, Layout
from commeff.compressors.layout import Peers, total
from commeff.compressors.places import Places, Stretches, part
from commeff.sharding.collectives import Axis
from commeff.sharding.layers import homes_of
from commeff.sharding.shard import Shard


@dataclass(frozen=True)
class ShardedLayout(Layout):
    """The fields of a rank's shards, one after the other.

    Attributes
    ----------
    unsharded : Layout
        The layout of the whole vector.
    runs : tuple of Stretches
        Where the columns lie in the model's vector.
    present : tuple of Field
        The whole tensors of which shards are on the ranks of this stage.
    holders : dict of str to (int, int)
        How many ranks of a pipeline stage hold what is here of each tensor, and how many stages do.
    sharding : tuple of Peers
        The mesh dimensions along which tensors are sharded or replicated.
    staging : tuple of Peers
        The mesh dimensions along which ranks hold other tensors.
    """

    unsharded: Layout = field(default_factory=lambda: Layout(()))
    runs: tuple[Stretches, ...] = ()
    present: tuple[Field, ...] = field(default=(), repr=False)
    holders: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False, hash=False)
    sharding: tuple[Peers, ...] = field(default=(), repr=False)  # an address differs from process to process
    staging: tuple[Peers, ...] = field(default=(), repr=False)

    @classmethod
    def of_shards(
        cls,
        shards: Mapping[str, Shard],
        sharding: Sequence[Peers],
        staging: Sequence[Peers] = (),
        stages: Mapping[str, Collection[Any]] | None = None,
        whole: Layout | None = None,
    ) -> ShardedLayout:
        """The layout of what a rank holds of a row.

        Parameters
        ----------
        shards : mapping of str to Shard
            What it holds of each tensor, in order.
        sharding, staging : sequence of Peers
            The mesh dimensions along which tensors are sharded or replicated, and those of a pipeline.
        stages : mapping of str to collection, optional
            The pipeline ranks that hold each tensor.
        whole : Layout, optional
            The layout of the whole row, where ranks hold other tensors.

        Examples
        --------
        The second of two ranks, which has the last column of a matrix, and a copy of a vector:

        >>> whole = Layout.of([("a", (2, 3)), ("b", (2,))])
        >>> column, copy = Shard.along(1, (2, 3), ((2, 3),)), Shard.of_all((2,), copies=2)
        >>> layout = ShardedLayout.of_shards({"a": column, "b": copy}, sharding=(), whole=whole)
        >>> layout.d, layout.size, layout.places.of(0, 4).tolist()
        (4, 8, [2, 5, 6, 7])
        >>> layout.spans(5, 7), layout.within(5, 7).d
        ([(1, 3)], 2)
        """
        whole = whole or Layout.of((name, shard.shape) for name, shard in shards.items())
        at = {tensor.name: tensor for tensor in whole.fields}
        runs = [run for name, shard in shards.items() for run in shard.places(whole.origin + at[name].start)]
        fields, start = [], 0
        for name, shard in shards.items():
            stop = start + prod(shard.sizes)
            fields.append(Field(name, shard.sizes, start, stop, at[name].group))
            start = stop
        holders = {name: (shard.copies, max(1, len(stages[name])) if stages else 1) for name, shard in shards.items()}
        present = tuple(at[name] for name in shards)
        return cls(tuple(fields), 0, whole, tuple(runs), present, holders, tuple(sharding), tuple(staging))

    @property
    def whole(self) -> Layout:
        return self.unsharded

    @property
    def tensors(self) -> tuple[Field, ...]:
        return self.present

    @property
    def shards_tensors(self) -> bool:
        return bool(self.sharding)

    @property
    def peers(self) -> Sequence[Peers]:
        return (*self.sharding, *self.staging)

    @cached_property
    def places(self) -> Places:
        return Places(self.runs)

    def copies(self, name: str) -> int:
        return self.holders[name][0]

    def slice(self, start: int, stop: int) -> ShardedLayout:
        return self.pick([(start, stop)])

    def pick(self, spans: Iterable[tuple[int, int]]) -> ShardedLayout:
        """The layout of several blocks of columns, one after the other."""
        fields: list[Field] = []
        runs: list[Stretches] = []
        plain, begin = Layout(self.fields), 0
        for start, stop in spans:
            runs += part(self.runs, start, stop)
            for piece in plain.slice(start, stop).fields:
                fields.append(piece._replace(start=piece.start + begin, stop=piece.stop + begin))
            begin += stop - start
        return replace(self, fields=tuple(fields), runs=tuple(runs))

    def spans(self, start: int, stop: int) -> list[tuple[int, int]]:
        return self.places.spans(self.unsharded.origin + start, self.unsharded.origin + stop)

    def within(self, start: int, stop: int) -> Layout:
        whole, pieces = self.unsharded.slice(start, stop), self.pick(self.spans(start, stop))
        names = {tensor.name for tensor in self.present}
        present = tuple(tensor for tensor in whole.fields if tensor.name in names)
        return replace(pieces, fields=pieces.fields or (Field("", (0,), 0, 0),), unsharded=whole, present=present)

    def row_sum(self, vectors: Tensor, of: Callable[[Tensor], Tensor] = total) -> Tensor:
        runs = [(ranks, list(run)) for ranks, run in groupby(self.fields, key=self._ranks)]
        shares = [of(vectors[:, run[0].start : run[-1].stop]) / ranks for ranks, run in runs]
        return _reduced(sum(shares[1:], shares[0]), "sum", self.peers)

    def row_max(self, largest: Tensor) -> Tensor:
        return _reduced(largest, "max", self.peers)

    def row_cat(self, shares: Tensor) -> Tensor:
        return _reduced(shares, "sum", self.sharding)

    def _ranks(self, tensor: Field) -> int:
        return prod(self.holders.get(tensor.name, ()))


def _reduced(values: Tensor, op: Literal["sum", "max"], peers: Sequence[Peers]) -> Tensor:
    for ranks in peers if values.numel() else ():
        values = ranks.reduce(values, op)
    return values


@dataclass(frozen=True)
class RankColumnMap(ColumnMap):
    """A map of the columns that a rank updates into the whole tensors of a model.

    Attributes
    ----------
    cuts : dict of str to Shard
        Which parts of the whole the pieces are; other tensors have no boxes here.
    borrowed : frozenset of str
        Tensors that another process is asked for, where several have them.
    """

    cuts: Mapping[str, Shard] = field(default_factory=dict)
    borrowed: frozenset[str] = frozenset()

    @classmethod
    def on_rank(
        cls, layout: Layout, parameters: Mapping[str, nn.Parameter], spans: Sequence[Span], pipeline: Axis
    ) -> RankColumnMap:
        """The map of a rank that computes with these parameters, in the layout's order."""
        cuts = {name: getattr(p, "cut", None) or Shard.of_all(p.shape or (1,)) for name, p in parameters.items()}
        homes = {name: homes_of(parameter, pipeline) for name, parameter in parameters.items()}
        borrowed = frozenset(name for name, ranks in homes.items() if ranks and ranks[0] != pipeline.rank)
        return cls(layout, tuple(spans), cuts, borrowed)

    @property
    def owned(self) -> RankColumnMap:
        return replace(self, cuts={name: cut for name, cut in self.cuts.items() if name not in self.borrowed})

    @property
    def shapes(self) -> dict[str, Shape]:
        return {name: cut.shape for name, cut in self.cuts.items()}

    def boxes(self, spans: Sequence[Span]) -> list[Box]:
        boxes = list[Box]()
        for box in super().boxes(spans):
            if box.tensor not in self.cuts:
                continue
            cut, start = self.cuts[box.tensor], box.start
            for offsets, sizes in cut.boxes(box.offsets, box.sizes):
                boxes.append(Box(box.tensor, cut.shape, offsets, sizes, start, start + prod(sizes)))
                start += prod(sizes)
        return boxes
