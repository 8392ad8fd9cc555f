"""Boxes of tensors: the places of columns, and tensors put together from boxes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from commeff.boxes import Boxes, ColumnMap
from commeff.compressors import Layout

LAYOUT = Layout.of([("matrix", (4, 3)), ("cube", (2, 3, 2)), ("number", ()), ("vector", (5,))])


def test_boxes_are_the_places_of_columns():
    whole = torch.arange(float(LAYOUT.d))
    for start, stop in [(0, LAYOUT.d), *pairwise(range(0, LAYOUT.d, 7)), (5, 27), (13, 14)]:
        covered = 0
        for box in ColumnMap.of(LAYOUT).boxes([(start, stop)]):
            (field,) = (f for f in LAYOUT.fields if f.name == box.tensor)
            there = whole[field.start : field.stop].view(box.shape)
            for dim, (offset, size) in enumerate(zip(box.offsets, box.sizes, strict=True)):
                there = there.narrow(dim, offset, size)
            assert torch.equal(there.flatten(), whole[start:stop][box.start : box.stop])
            covered += box.stop - box.start
        assert covered == stop - start


def test_one_name_for_two_tensors_is_refused():
    boxes = Boxes((2, 2))
    boxes.put((0, 0), torch.ones(1, 2))
    boxes.put((0, 0), torch.ones(1, 2))
    with pytest.raises(ValueError, match=r"must be one tensor, got two different ones at \(0, 0\)"):
        boxes.put((0, 0), torch.zeros(1, 2))
    with pytest.raises(ValueError, match="must have 4 numbers that are needed here, got 2"):
        boxes.whole()


def test_any_box_is_put_together_from_those_that_are_here():
    whole = torch.arange(24.0).view(4, 6)
    boxes = Boxes(whole.shape, [((0, 0), whole[:3, :4]), ((0, 4), whole[:3, 4:]), ((3, 0), whole[3:])])
    assert torch.equal(boxes.whole(), whole)
    assert torch.equal(boxes.read((1, 2), (3, 4)), whole[1:, 2:])
    assert boxes.read((0, 1), (2, 2)).data_ptr() == whole[0, 1:].data_ptr(), "a view, if one box has all"
