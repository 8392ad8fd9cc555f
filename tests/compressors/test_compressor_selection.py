"""Exactly the k largest magnitudes, the lower index among equals, whichever path finds them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from commeff.compressors import RandomK, TopK, WorkerRandom
from commeff.compressors.packing import words
from commeff.compressors.topk import LONG, largest_by_threshold, largest_magnitudes

D = 3 * LONG + 17
HUGE = float("inf")


def rows():
    normal = WorkerRandom(0, range(3)).normal(D)
    trap = torch.zeros(3, D)
    trap[:, :: int(D**0.3) | 1] = normal[:, :: int(D**0.3) | 1]  # the sample sees nothing but large entries
    hidden = normal.clone()
    hidden[:, :: int(D**0.3) | 1] = 0
    special = normal.clone()
    special[:, [5, 700, 9000]] = torch.tensor([float("nan"), HUGE, -HUGE])
    return {
        "normal": normal,
        "many equal": (normal * 2).round(),
        "all equal": torch.full((3, D), -1.0),
        "zero": torch.zeros(3, D),
        "sample too large": trap,
        "sample too small": hidden,
        "not finite": special,
        "float64": normal.double() ** 9,
        "bfloat16": normal.bfloat16(),
        "strided": torch.stack([normal, normal], 2)[:, :, 0],
    }


def by_sorting(vectors, k):
    """The definition: sort by falling magnitude, then rising index."""
    numbers = (
        vectors.double().abs().nan_to_num(nan=2.0, posinf=1.0)
        if not vectors.isfinite().all()
        else vectors.double().abs()
    )
    if not vectors.isfinite().all():
        numbers = numbers.where(~vectors.isfinite(), numbers / 1e9)
    return torch.from_numpy(np.sort(np.argsort(-numbers.numpy(), axis=1, kind="stable")[:, :k], axis=1))


@pytest.mark.parametrize("k", [1, 13, 600, D - 1, D])
@pytest.mark.parametrize("name", rows())
def test_both_paths_are_the_definition(name, k):
    vectors = rows()[name]
    expected = by_sorting(vectors, k)
    assert torch.equal(largest_magnitudes(vectors, k), expected)
    assert torch.equal(largest_by_threshold(vectors, k), expected)
    assert torch.equal(
        largest_magnitudes(vectors[:, : LONG - 1], min(k, 99)), by_sorting(vectors[:, : LONG - 1], min(k, 99))
    )


def test_no_rows_have_no_choice_and_a_row_of_zeros_is_not_sorted_by_a_sample():
    assert largest_magnitudes(torch.zeros(0, LONG + 1), 3).shape == (0, 3)
    sparse = torch.zeros(2, 4 * LONG)
    sparse[0, ::1000], sparse[1] = 1.0, torch.randn(4 * LONG)
    assert torch.equal(largest_by_threshold(sparse, 40), by_sorting(sparse, 40))


def test_words_order_like_magnitudes():
    numbers = torch.tensor([0.0, 1e-45, 1.0, 1.5, 3e38, HUGE, float("nan")])
    assert (words(numbers).diff() > 0).all()


@pytest.mark.parametrize("kind", [TopK, RandomK])
def test_what_cannot_be_kept_is_refused(kind):
    for arguments, reason in (
        ({}, "exactly one"),
        ({"ratio": 0.1, "k": 2}, "exactly one"),
        ({"ratio": 0.0}, r"ratio must lie in \(0, 1\], got"),
        ({"ratio": 1.1}, r"ratio must lie in \(0, 1\], got"),
        ({"k": 0}, "k must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=reason):
            kind(**arguments)
    from commeff.compressors import Layout

    with pytest.raises(ValueError, match="k must be at most d = 4, got"):
        kind(k=5).bind(Layout.flat(4))
    with pytest.raises(ValueError, match="k must be at most d = 4, got"):
        kind(k=5).compress(torch.ones(1, 4), WorkerRandom(0, [0]))
    assert [kind(ratio=0.01).count(d) for d in (0, 1, 49, 151, 1000)] == [0, 1, 1, 2, 10]
