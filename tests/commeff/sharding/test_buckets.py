"""The buckets of ZeRO 2: whole tensors of so many megabytes, of which each rank updates its part."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from commeff.compressors import Layout
from commeff.sharding import Axis
from commeff.sharding.zero import BucketedRow

SIZES = (2, 3, 1, 4, 7)


def rows(megabytes: float, dtype: torch.dtype, ranks: int = 1) -> list[BucketedRow]:
    parameters = {str(i): nn.Parameter(torch.zeros(size, dtype=dtype)) for i, size in enumerate(SIZES)}
    layout = Layout.of([(name, tuple(p.shape)) for name, p in parameters.items()])
    return [BucketedRow(parameters, layout, Axis("shard", ranks, i), megabytes=megabytes) for i in range(ranks)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("most", "buckets"),
    [
        (0, [(0, 17)]),
        (17, [(0, 17)]),
        (16, [(0, 2), (2, 17)]),
        (11, [(0, 6), (6, 17)]),
        (4, [(0, 2), (2, 6), (6, 10), (10, 17)]),
        (1, [(0, 2), (2, 5), (5, 6), (6, 10), (10, 17)]),
    ],
)
def test_a_bucket_holds_as_many_whole_tensors_as_fit(
    most: int, buckets: list[tuple[int, int]], dtype: torch.dtype
) -> None:
    (row,) = rows(most * dtype.itemsize / 1e6, dtype)
    assert row.spans == buckets
    assert row.awaited(()) == (buckets if len(buckets) > 1 else ()), "one alone may be added to by several passes"
    shared = [each.spans for each in rows(most * dtype.itemsize / 1e6, dtype, ranks=3)]
    for (start, stop), *own in zip(buckets, *shared, strict=True):
        width = -(-(stop - start) // 3)
        assert own == [*pairwise(min(start + i * width, stop) for i in range(4))]
