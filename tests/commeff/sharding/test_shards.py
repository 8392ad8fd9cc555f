"""The part of a tensor that a rank holds: its numbers, their places in a vector, and its boxes."""

from __future__ import annotations

import pytest
import torch

from commeff.boxes import ColumnMap
from commeff.compressors import Layout
from commeff.compressors.places import Places
from commeff.sharding import Shard
from commeff.sharding.layout import RankColumnMap
from commeff.sharding.shard import cut_evenly

SHARDS = {
    "all": Shard.of_all((4, 3), copies=2),
    "rows": Shard.along(0, (4, 3), ((1, 3),)),
    "runs of rows": Shard.along(0, (6, 2, 2), ((0, 1), (3, 5))),
    "columns": Shard.along(1, (4, 6), ((2, 5),)),
    "runs of columns": Shard.along(1, (3, 8), ((1, 3), (5, 6))),
    "columns of rows": Shard((4, 6), (((1, 2), (3, 4)), ((2, 5),))),
    "depth": Shard.along(2, (2, 3, 5), ((0, 2), (4, 5))),
    "a part of equal parts": cut_evenly((12, 2), 0, size=2, rank=1, parts=3),
}


@pytest.mark.parametrize("name", SHARDS)
def test_its_numbers_places_and_boxes_are_the_same(name):
    shard = SHARDS[name]
    whole = torch.arange(torch.Size(shard.shape).numel()).view(shard.shape)
    piece = shard.take(whole)
    assert piece.shape == shard.sizes
    assert piece.data_ptr() != whole.data_ptr()
    places = Places(shard.places(100))
    assert (places.of(0, len(places)) - 100).tolist() == piece.flatten().tolist()
    layout = Layout.of([("x", shard.sizes)])
    where = RankColumnMap(layout, ((0, layout.d),), cuts={"x": shard})
    for start, stop in [(0, layout.d), (1, layout.d - 1), (2, 3)]:
        found = torch.full((stop - start,), -1)
        for box in where.boxes([(start, stop)]):
            there = whole[tuple(slice(a, a + n) for a, n in zip(box.offsets, box.sizes, strict=True))]
            found[box.start : box.stop] = there.flatten()
        assert torch.equal(found, piece.flatten()[start:stop])


def test_a_rank_that_has_all_has_the_boxes_of_whole_models():
    layout = Layout.of([("x", (4, 3)), ("y", (2,))])
    where = RankColumnMap(layout, ((0, layout.d),), cuts={"x": SHARDS["all"], "y": Shard.of_all((2,))})
    assert where.boxes([(1, 13)]) == ColumnMap.of(layout).boxes([(1, 13)])


def test_it_is_printed_like_a_placement():
    assert [str(SHARDS[name]) for name in ("all", "runs of rows", "columns of rows")] == [
        "R of (4, 3)",
        "S(0)[0:1, 3:5] of (6, 2, 2)",
        "S(0)[1:2, 3:4] S(1)[2:5] of (4, 6)",
    ]


def test_what_has_no_numbers_has_no_places():
    assert not Shard((4, 3), ((), ((0, 3),))).places()
