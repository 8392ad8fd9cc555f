"""Ranks of a worker save every number of its model once, wherever its tensors lie."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from commeff.sharding.played import PlayedMesh
from commeff.training.sharding import on_mesh
from tests.commeff.sharding.test_stages import Tied

STAGES = {"pipeline": 2, "shard": 2}


@pytest.mark.parametrize(("degrees", "zero"), [(STAGES, 2), (STAGES | {"tensor": 2}, 1)], ids=str)
def test_what_is_tied_over_stages_is_saved_once(degrees, zero):
    counts = {name: torch.zeros(p.shape) for name, p in Tied().model().named_parameters()}
    copied = {name for name in counts if "norm" in name}  # all tensor ranks have and save them; one of them writes
    for place in product(*map(range, degrees.values())):
        mesh = PlayedMesh(degrees, dict(zip(degrees, place, strict=True)))
        where = on_mesh(Tied(), mesh, zero=zero, micro_batches=2).where
        for box in where.owned.boxes(where.spans):
            there = tuple(slice(a, a + n) for a, n in zip(box.offsets, box.sizes, strict=True))
            counts[box.tensor][there] += 1
    for name, count in counts.items():
        assert (count == (degrees.get("tensor", 1) if name in copied else 1)).all(), name
