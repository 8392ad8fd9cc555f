"""What ranks would hold of a model that is whole, and the parts of its row: what simulations of them compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from commeff.boxes import Span
from commeff.compressors import Layout
from commeff.sharding import Axis, Plan, Shard
from commeff.sharding.fit import cut_of, styles
from commeff.sharding.layout import ShardedLayout
from commeff.sharding.parts import Part, joined, parts_of, ranks_in_words


def shards_of(model: nn.Module, plan: Plan, axis: Axis) -> dict[str, Shard]:
    """What a rank of the axis would hold, by the names of tensors; nothing is split."""
    return {
        f"{name}.{key}": cut_of(style, key, parameter, axis)
        for name, style in styles(model, plan).items()
        for key, parameter in model.get_submodule(name).named_parameters(recurse=False)
    }


def parts_of_whole(
    whole: Layout,
    shards: Sequence[Mapping[str, Shard]],
    stages: Mapping[str, Sequence[int]] | None = None,
    shares: Callable[[Layout], Sequence[Sequence[Span]]] | None = None,
) -> tuple[Part, ...]:
    """The parts of a whole row of which tensor ranks have these shards, and shard ranks these columns of them."""
    ranks = []
    for rank, held in enumerate(shards):
        tensor = Axis("tensor", len(shards), rank)
        shards_here = {field.name: held[field.name] for field in whole.fields}
        layout = ShardedLayout.of_shards(shards_here, (tensor,), whole=whole)
        spans = [[(0, layout.d)]] if shares is None else shares(layout)
        for number, share in enumerate(spans):
            own = layout.pick(share)
            words = ranks_in_words(own, tensor, Axis("shard", len(spans), number), stages)
            ranks.append((own, parts_of(own, words)))
    return joined(ranks)
