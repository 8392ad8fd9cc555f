"""The layout of shards: cut at any column of the whole."""

from __future__ import annotations

import torch

from commeff.compressors import Layout
from commeff.compressors.places import Stretches
from commeff.sharding import Shard
from commeff.sharding.layout import ShardedLayout


def test_a_piece_is_cut_where_the_whole_is():
    """A rank with the last two of four columns of a matrix, and nothing of what follows it."""
    whole = Layout.of([("matrix", (3, 4)), ("vector", (5,))])
    piece = ShardedLayout.of_shards({"matrix": Shard.along(1, (3, 4), ((2, 4),))}, sharding=(), whole=whole)
    assert (piece.d, piece.size, piece.whole.origin, piece.tensors) == (6, 17, 0, whole.fields[:1])
    assert piece.slice(1, 4).runs == (Stretches(3, 1), Stretches(6, 2))
    inner = piece.within(5, 12)
    assert (inner.d, inner.size, inner.whole.origin) == (4, 7, 5)
    assert (inner.places.of(0, 4).tolist(), inner.spans(5, 7)) == ([6, 7, 10, 11], [(2, 4)])
    assert piece.within(12, 17).d == 0
    assert piece.within(12, 17).row_sum(torch.ones(2, 0)).tolist() == [[0.0], [0.0]]
