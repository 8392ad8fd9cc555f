"""Layouts: consecutive fields, cut at any column."""

from __future__ import annotations

import pytest
import torch

from commeff.compressors import Field, Layout
from commeff.compressors.places import Places, Stretches, part

LAYOUT = Layout.of([("w", (2, 3)), ("b", (2,)), ("s", ())], groups=[0, 1, 0])


def test_fields_are_consecutive():
    assert LAYOUT.fields == (
        Field("w", (2, 3), 0, 6, 0),
        Field("b", (2,), 6, 8, 1),
        Field("s", (), 8, 9, 0),
    )
    assert (LAYOUT.d, LAYOUT.boundaries) == (9, (0, 6, 8, 9))
    assert Layout.flat(4).fields == (Field("", (4,), 0, 4),)
    assert Layout.flat(0).d == Layout(()).d == 0
    assert hash(LAYOUT) == hash(Layout.of([("w", (2, 3)), ("b", (2,)), ("s", ())], groups=[0, 1, 0]))


def test_slices_of_slices_are_slices():
    assert LAYOUT.slice(0, 9) == LAYOUT
    for start in range(10):
        for stop in range(start, 10):
            part = LAYOUT.slice(start, stop)
            assert part.d == stop - start
            assert part.slice(0, part.d) == part
            for middle in range(part.d + 1):
                assert part.slice(middle, part.d) == LAYOUT.slice(start + middle, stop)


def test_a_cut_tensor_is_flat_and_keeps_its_group():
    assert LAYOUT.slice(4, 8).fields == (
        Field("w", (2,), 0, 2, 0),
        Field("b", (2,), 2, 4, 1),
    )
    assert LAYOUT.slice(6, 9).fields[0].shape == (2,)
    cuts = {(a, b) for a in range(10) for b in range(a, 10) if LAYOUT.cuts_tensor(a, b)}
    allowed = {(a, b) for a in (0, 6, 8, 9) for b in (0, 6, 8, 9) if a <= b}
    assert cuts == {(a, b) for a in range(10) for b in range(a, 10)} - allowed


def test_what_does_not_fit_is_refused():
    for start, stop in ((-1, 3), (3, 2), (0, 10)):
        with pytest.raises(ValueError, match="0 <= start <= stop <= d"):
            LAYOUT.slice(start, stop)
    for shape in ((2.5,), (-1,), (True, -2)):
        with pytest.raises(ValueError, match="whole numbers of at least 0, got"):
            Layout.of([("w", shape)])
    with pytest.raises(ValueError, match=r"whole numbers of at least 0, got \(2\.5,\)"):
        Layout.flat(2.5)
    with pytest.raises(ValueError, match="names of their own, got 'w' twice"):
        Layout.of([("w", (1,)), ("v", (1,)), ("w", (2,))])
    with pytest.raises(ValueError, match="one entry for each of the"):
        Layout.of([("a", (1,))], groups=[0, 1])


def test_row_sums_are_columns():
    assert LAYOUT.row_sum(torch.ones(2, 9)).tolist() == [[9.0], [9.0]]


def test_places_are_those_of_their_runs():
    """Every way to ask for places, against the list of them."""
    runs = [Stretches(1, 2, stride=5, times=3), Stretches(20, 4), Stretches(30, 1, stride=2, times=4)]
    listed = [run.start + i * run.stride + j for run in runs for i in range(run.times) for j in range(run.length)]
    places = Places(runs)
    assert len(places) == len(listed)
    for a in range(len(listed) + 1):
        for b in range(a, len(listed) + 1):
            assert places.of(a, b).tolist() == Places(part(runs, a, b)).of(0, b - a).tolist() == listed[a:b]
            follow = listed[a:b] == list(range(listed[a], listed[a] + b - a)) if a < b else True
            assert a == b or places.together(a, b) == (listed[a] if follow and places.together(a, b) >= 0 else -1)
    for start in range(40):
        for stop in range(start, 40):
            spans = places.spans(start, stop)
            assert len(spans) <= 1
            assert [p for a, b in spans for p in listed[a:b]] == [place for place in listed if start <= place < stop]
    here, columns = places.find(torch.arange(40))
    assert here.nonzero()[:, 0].tolist() == listed
    assert columns[here].tolist() == list(range(len(listed)))
    assert Places([]).spans(3, 9) == []
    assert Places([runs[1], runs[0]]).spans(6, 22) == [(0, 2), (6, 10)]
