"""DRIVE and EDEN: a rotation that is one, levels that are the best, and what every draw and what many draws give."""

from __future__ import annotations

from math import pi

import pytest
import torch

from commeff.compressors import Compressor, Drive, Eden, WorkerRandom
from commeff.compressors.rotated import hadamard, normal_levels, plus_or_minus, random_signs

LOST = {1: 1 - 2 / pi, 2: 0.1175, 3: 0.03454, 4: 0.009497}  # of a normal number (Max 1960, table I)


def draws(compressor: Compressor, vector: torch.Tensor, workers: int = 1) -> torch.Tensor:
    return compressor.compress(vector.expand(workers, -1), WorkerRandom(0, range(workers))).decode()


def error(found: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return (found - vector).square().sum(1) / vector.square().sum()


@pytest.mark.parametrize("b", [1, 2, 4, 8, 32, 128])
def test_a_hadamard_transform_is_a_rotation_and_its_inverse_undoes_it(b: int) -> None:
    matrix = hadamard(torch.eye(b, dtype=torch.float64))
    assert (matrix.abs() == 1).all()
    assert torch.equal(matrix @ matrix.T, b * torch.eye(b, dtype=torch.float64))
    assert torch.equal(hadamard(matrix, inverse=True), b * torch.eye(b, dtype=torch.float64))


def test_signs_are_fair_and_each_worker_has_its_own() -> None:
    signs = plus_or_minus(random_signs(WorkerRandom(0, range(2)).choice_keys(), slice(0, 100_000)), torch.float64)
    assert (signs.abs() == 1).all()
    assert signs.mean(1).abs().max() < 5 / 100_000**0.5
    assert (signs[0] * signs[1]).mean().abs() < 5 / 100_000**0.5


@pytest.mark.parametrize("bits", LOST)
def test_levels_are_the_best_for_normal_numbers(bits: int) -> None:
    levels = torch.tensor(normal_levels(bits), dtype=torch.float64)
    grid = torch.linspace(-8, 8, 40_001, dtype=torch.float64)
    weights = torch.exp(-grid.square() / 2)
    cells = (grid[:, None] - levels).abs().argmin(1)
    lost = float((weights * (grid - levels[cells]).square()).sum() / weights.sum())
    assert lost == pytest.approx(LOST[bits], rel=1e-3)
    means = torch.stack([(weights * grid)[cells == i].sum() / weights[cells == i].sum() for i in range(len(levels))])
    assert torch.allclose(means, levels, atol=1e-3)


@pytest.mark.parametrize("d", [1, 5, 64, 100])
@pytest.mark.parametrize("bits", [1, 2, 5])
def test_both_scales_in_every_draw(bits: int, d: int) -> None:
    """C(v) . v = |v|^2; and of the same direction, the errors are tan^2 and sin^2 of its angle with v."""
    v = WorkerRandom(1, [0]).normal(d, dtype=torch.float64) ** 3
    unbiased, closest = draws(Eden(bits, 128), v, 50), draws(Eden(bits, 128, unbiased=False), v, 50)
    torch.testing.assert_close((unbiased * v).sum(1), v.square().sum().expand(50), rtol=1e-12, atol=0)
    square = (closest * v).sum(1, keepdim=True) / v.square().sum()  # cos^2
    torch.testing.assert_close(closest, square * unbiased, rtol=1e-9, atol=1e-12)
    tangent, sine = error(unbiased, v), error(closest, v)
    if d in (1, 64):  # others are filled up, and what is added is cut off again
        torch.testing.assert_close(sine, 1 - square[:, 0], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(tangent, 1 / square[:, 0] - 1, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bits", LOST)
def test_errors_are_those_of_normal_numbers_whatever_the_vector(bits: int) -> None:
    v = WorkerRandom(1, [0]).normal(4096) ** 3
    lost = LOST[bits]
    assert float(error(draws(Eden(bits), v, 40), v).mean()) == pytest.approx(lost / (1 - lost), rel=0.05)
    assert float(error(draws(Eden(bits, unbiased=False), v, 40), v).mean()) == pytest.approx(lost, rel=0.05)


def test_errors_average_out_over_workers() -> None:
    v = WorkerRandom(1, [0]).normal(1024, dtype=torch.float64)
    n = 2000
    mean = draws(Drive(), v, n).mean(0, keepdim=True)
    assert float(error(mean, v)) < 1.5 * (pi / 2 - 1) / n


def test_a_pair_alone_stays_biased() -> None:
    """Why omega is None: in every draw the smaller of two numbers is lost."""
    v = torch.tensor([[2.0, 1.0, *[0.0] * 14]], dtype=torch.float64)
    expected = torch.zeros_like(v)
    expected[0, 0] = 2.5
    torch.testing.assert_close(draws(Drive(), v, 20), expected.expand(20, -1), rtol=1e-9, atol=1e-9)
    assert (Drive().omega(16), Drive(unbiased=False).delta(16), Drive().delta(16)) == (None, 1 / 16, None)


def test_one_bit_is_the_sign_of_the_rotation() -> None:
    v = WorkerRandom(1, [0]).normal(300)
    assert torch.equal(draws(Drive(64), v, 3), draws(Eden(1, 64), v, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("d", "side", "blocks"), [(1, 8, 1), (5, 8, 1), (64, 64, 1), (65, 64, 2), (1000, 64, 16)])
def test_bytes_count_what_blocks_are_filled_up_with(d: int, side: int, blocks: int, dtype: torch.dtype) -> None:
    for bits in (1, 3):
        sent = Eden(bits, 64).compress(torch.ones(2, d, dtype=dtype), WorkerRandom(0, range(2))).wire_bytes.tolist()
        assert sent == [8 + blocks * dtype.itemsize + -(-bits * side * blocks // 8)] * 2


@pytest.mark.parametrize(("settings", "sentence"), [((0, 64), r"bits must lie in \[1, 8\]"), ((2, 48), "power of two")])
def test_what_cannot_be_is_refused(settings: tuple[int, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Eden(*settings)
    with pytest.raises(ValueError, match="Drive: block must be a power of two"):
        Drive(0)
