"""Which boxes of whole tensors a rank's columns are, where pieces of tensors lie on several ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from torch import nn

from commeff.compressors import Layout
from commeff.compressors.boxes import Box, Shape, Span, Whereabouts
from commeff.sharding.collectives import Axis
from commeff.sharding.layers import homes_of
from commeff.sharding.shard import Shard


@dataclass(frozen=True)
class RankWhereabouts(Whereabouts):
    """Where the columns that a rank updates lie in the whole tensors of a model.

    Attributes
    ----------
    cuts : dict of str to Shard
        Which parts of the whole the pieces are.
    borrowed : frozenset of str
        Tensors that another process is asked for, where several have them.
    left_out : frozenset of str
        Tensors that have no boxes here.
    """

    cuts: Mapping[str, Shard] = field(default_factory=dict)
    borrowed: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()

    @classmethod
    def on_rank(
        cls, layout: Layout, parameters: Mapping[str, nn.Parameter], spans: Sequence[Span], pipeline: Axis
    ) -> RankWhereabouts:
        """Of a rank that computes with these parameters, in the layout's order."""
        cuts = {name: getattr(p, "cut", None) or Shard.of_all(p.shape or (1,)) for name, p in parameters.items()}
        homes = {name: homes_of(parameter, pipeline) for name, parameter in parameters.items()}
        borrowed = frozenset(name for name, ranks in homes.items() if ranks and ranks[0] != pipeline.rank)
        return cls(layout, tuple(spans), cuts, borrowed)

    @property
    def lent(self) -> RankWhereabouts:
        return replace(self, left_out=self.borrowed)

    @property
    def shapes(self) -> dict[str, Shape]:
        return {name: cut.shape for name, cut in self.cuts.items()}

    def boxes(self, spans: Sequence[Span]) -> list[Box]:
        found = list[Box]()
        for box in super().boxes(spans):
            cut, start = self.cuts[box.tensor], box.start
            for offsets, sizes in cut.boxes(box.offsets, box.sizes) if box.tensor not in self.left_out else ():
                found.append(Box(box.tensor, cut.shape, offsets, sizes, start, start + prod(sizes)))
                start += prod(sizes)
        return found
