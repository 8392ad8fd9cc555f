"""Signs, levels and narrow floats: the closed forms of their errors, each from its own formula, and their bytes."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import pytest
import torch

from commeff.compressors import NF4, Assumed, Compressor, Fp8, OneBit, ScaledSign, WorkerRandom, contractive
from commeff.compressors.codebook import NORMAL_FLOATS
from commeff.sharding.pieces import exact_on_pieces
from commeff.transforms import ErrorFeedback

D = 24
ONE_HOT = torch.zeros(D, dtype=torch.float64).index_fill(0, torch.tensor(3), -2.0)


def vectors() -> dict[str, torch.Tensor]:
    normal = WorkerRandom(0, [0]).normal(D, dtype=torch.float64)[0]
    return {"normal": normal, "heavy": normal**3, "shifted": normal + 0.8, "positive": normal.abs(), "one": ONE_HOT}


def decoded(compressor: Compressor, vector: torch.Tensor) -> torch.Tensor:
    return compressor.compress(vector[None], WorkerRandom(0, [0])).decode()[0]


@pytest.mark.parametrize("name", vectors())
def test_signs_of_the_same_norm(name: str) -> None:
    v, one, two = vectors()[name], ScaledSign(), ScaledSign("l2")
    norm, kept = float(v.norm()), float(v.abs().sum()) / sqrt(D)
    error = float((decoded(two, v) - v).square().sum())
    assert error == pytest.approx(2 * norm**2 * (1 - kept / norm), rel=1e-12, abs=1e-12)
    assert float(decoded(two, v).norm()) == pytest.approx(norm)
    assert error >= float((decoded(one, v) - v).square().sum()) - 1e-12


@pytest.mark.parametrize("d", [1, 2, 3, 4, 100])
def test_the_worst_vector_of_the_l2_scale_is_a_single_number(d: int) -> None:
    v = torch.zeros(d, dtype=torch.float64)
    v[0] = 3
    error, delta = float((decoded(ScaledSign("l2"), v) - v).square().sum()) / 9, ScaledSign("l2").delta(d)
    assert error == pytest.approx(2 - 2 / sqrt(d), abs=1e-12)
    assert (delta is None) == (d > 3)
    assert delta is None or 1 - delta == pytest.approx(error, abs=1e-12)


def test_what_is_contractive_in_practice_is_taken_at_its_word() -> None:
    with pytest.raises(ValueError, match=r"neither in 24 dimensions.* say Assumed\(compressor, contraction=0\.5\)"):
        contractive(ScaledSign("l2")).for_dimension(D)
    assumed = Assumed(ScaledSign("l2"), contraction=0.5)
    assert contractive(assumed).for_dimension(D) == assumed
    assert exact_on_pieces(ErrorFeedback(assumed))
    unbiased = Assumed(ScaledSign("l2"), contraction=None, variance=3.0)
    assert contractive(unbiased).delta(D) == 0.25
    assert torch.equal(decoded(assumed, ONE_HOT), decoded(ScaledSign("l2"), ONE_HOT))


@pytest.mark.parametrize("name", vectors())
def test_two_levels_lose_the_variance_within_them(name: str) -> None:
    v = vectors()[name]
    halves = [v[v > 0], v[v <= 0]] if name != "one" else [v[v == 0], v[v != 0]]  # a zero is positive
    variance = sum(float((half - half.mean()).square().sum()) for half in halves if len(half))
    found = decoded(OneBit(), v)
    error = float((found - v).square().sum())
    assert error == pytest.approx(variance, rel=1e-12, abs=1e-12)
    assert error <= float((decoded(ScaledSign(), v) - v).square().sum()) + 1e-12
    assert float(found.sum()) == pytest.approx(float(v.sum()))  # what is kept is the mean of each half


def test_two_levels_of_one_sign_and_none() -> None:
    assert decoded(OneBit(), torch.tensor([-2.0, -4.0])).tolist() == [-3.0, -3.0]
    assert OneBit().compress(torch.empty(2, 0), WorkerRandom(0, range(2))).decode().shape == (2, 0)


@pytest.mark.parametrize("name", vectors())
@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_eight_bits_are_the_nearest_of_their_numbers(format: str, name: str) -> None:
    """Of all 256, made here of sign, exponent and mantissa."""
    mantissa, bias = {"e4m3": (3, 7), "e5m2": (2, 15)}[format]
    codes = range((1 << 7) - {"e4m3": 1, "e5m2": 4}[format])  # without infinity and NaN
    exponents = [(code >> mantissa, (code % (1 << mantissa)) / (1 << mantissa)) for code in codes]
    halves = [2.0 ** (e - bias) * (1 + f) if e else 2.0 ** (1 - bias) * f for e, f in exponents]
    table, v = torch.tensor([*halves, *(-x for x in halves)], dtype=torch.float64), vectors()[name]
    unit = v.abs().max() / table.max()
    errors = (v[:, None] - unit * table).abs().min(dim=1).values
    found = (decoded(Fp8(format), v) - v).abs()
    torch.testing.assert_close(found, errors, rtol=1e-6, atol=1e-12)
    assert float(found.square().sum()) <= (1 - Fp8(format).delta(D)) * float(v.square().sum())


def test_eight_bits_fade_where_the_docstring_says() -> None:
    v = torch.tensor([1.0, 1 / 28672, 1e-7])
    assert ((decoded(Fp8(), v) - v)[1].abs() <= v[1] / 16, decoded(Fp8(), v)[2]) == (True, 0)
    assert (decoded(Fp8("e5m2"), v) - v)[2].abs() <= v[2] / 8


@pytest.mark.parametrize("name", vectors())
def test_four_bits_are_the_nearest_level(name: str) -> None:
    v, table = vectors()[name], torch.tensor(NORMAL_FLOATS, dtype=torch.float64)
    blocks = [(v[:16], 16), (v[16:], 8)]
    errors = [(b[:, None] - b.abs().max() * table).abs().min(dim=1).values for b, _ in blocks]
    torch.testing.assert_close((decoded(NF4(16), v) - v).abs(), torch.cat(errors), rtol=1e-12, atol=1e-12)
    assert tuple(sorted(NORMAL_FLOATS)) == NORMAL_FLOATS


@pytest.mark.parametrize("d", [1, 2, 64, 1000])
def test_the_worst_vector_of_four_bits_lies_between_two_levels(d: int) -> None:
    delta, worst = NF4(None).delta(d), 0.0
    for low, high in pairwise(NORMAL_FLOATS):
        v = torch.full((d,), (low + high) / 2, dtype=torch.float64).index_fill(0, torch.tensor(0), 1.0)
        worst = max(worst, float((decoded(NF4(None), v) - v).square().sum() / v.square().sum()))
    assert 1 - delta == pytest.approx(worst, rel=1e-9)
    assert NF4().delta(d) == NF4(None).delta(min(d, 64))


@pytest.mark.parametrize("d", [1, 7, 8, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bytes_follow_the_formulas(d: int, dtype: torch.dtype) -> None:
    bits = -(-d // 8)
    expected = {
        ScaledSign("l2"): bits + dtype.itemsize,
        OneBit(): bits + 2 * dtype.itemsize,
        Fp8("e5m2"): d + dtype.itemsize,
        NF4(16): sum(-(-min(16, d - first) // 2) + dtype.itemsize for first in range(0, d, 16)),
    }
    for compressor, size in expected.items():
        message = compressor.compress(torch.ones(3, d, dtype=dtype), WorkerRandom(0, range(3)))
        assert message.wire_bytes.tolist() == [size] * 3, compressor
