"""Count sketches and cosine transforms: their closed forms, each from its own formula, and their bytes."""

from __future__ import annotations

import pytest
import scipy.fft
import torch

from commeff.compressors import Blockwise, CountSketch, DCTTopK, Layout, PerTensor, TopK, WorkerRandom

D = 24
NORMAL = WorkerRandom(0, [0]).normal(D, dtype=torch.float64)


def assert_mean(samples: torch.Tensor, exact: float) -> None:
    """The mean of the samples is the exact value, within five standard errors."""
    assert abs(float(samples.mean()) - exact) <= 5 * float(samples.std()) / len(samples) ** 0.5


@pytest.mark.parametrize("power", [1, 5])
def test_a_row_of_a_sketch_errs_by_what_falls_into_one_cell(power: int) -> None:
    """Its median is that row; thousands of workers hash it in as many ways."""
    v, draws = NORMAL**power, 20_000
    compressor = CountSketch(8, estimate="median")
    decoded = compressor.compress(v.expand(draws, -1), WorkerRandom(0, range(draws))).decode()
    assert_mean((decoded - v).square().sum(1), (D - 1) / 8 * float(v.square().sum()))
    assert compressor.omega(D) == CountSketch(8).omega(D) == (D - 1) / 8


def test_rows_of_a_sketch_are_independent() -> None:
    compressor = CountSketch(8, rows=2)
    steps = [compressor.compress(NORMAL, WorkerRandom(0, [0], step)).decode() for step in range(400)]
    assert_mean((torch.cat(steps) - NORMAL).square().sum(1), (D - 1) / 16 * float(NORMAL.square().sum()))
    assert compressor.omega(D) == (D - 1) / 16


def test_two_numbers_share_a_cell_as_often_as_by_chance_with_fair_signs() -> None:
    one, keys, width = torch.zeros(1, D).index_fill(1, torch.tensor(5), 1.0), 4000, 7
    found = CountSketch(width, estimate="median").compress(one.expand(keys, -1), WorkerRandom(0, range(keys))).decode()
    assert (found[:, 5] == 1).all()
    others = torch.cat([found[:, :5], found[:, 6:]], 1)
    for of, share in ((others != 0, 1 / width), (others > 0, 0.5 / width)):
        assert (of.double().mean(0) - share).abs().max() < 5 * (share / keys) ** 0.5


def test_a_sum_of_sketches_is_the_sketch_of_the_sum() -> None:
    vectors, random = WorkerRandom(1, range(5)).normal(1000, dtype=torch.float64), WorkerRandom(0, range(5))
    message = CountSketch(100, rows=2).compress(vectors, random)
    together = CountSketch(100, rows=2).compress(vectors.sum(0, keepdim=True), WorkerRandom(0, [9]))
    added = message.with_parts([part.sum(0, keepdim=True) for part in message.parts])
    torch.testing.assert_close(added.decode(), together.decode(), rtol=1e-12, atol=1e-12)
    later = CountSketch(100, rows=2).compress(vectors, WorkerRandom(0, range(5), step=1))
    assert not torch.equal(later.parts[0], message.parts[0])


def test_the_median_is_not_moved_by_one_collision() -> None:
    v = torch.ones(1, 200).index_fill(1, torch.tensor(0), 1e6)
    mean, median = (
        CountSketch(500, 5, estimate).compress(v, WorkerRandom(0, [0])).decode() for estimate in ("mean", "median")
    )
    assert (median[:, 1:] - 1).abs().max() < 10 < (mean[:, 1:] - 1).abs().max()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ((0,), "width must be at least 1"),
        ((3, 0), "rows must be at least 1"),
        ((3, 2, "median"), "rows must be odd .* give rows=3"),
        ((3, 1, "mode"), "'mean' or 'median', got 'mode'"),
    ],
)
def test_what_a_sketch_cannot_be_is_refused(settings: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        CountSketch(*settings)


@pytest.mark.parametrize("d", [24, 21, 3, 1])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_largest_cosine_coefficients_are_kept_of_each_chunk(k: int, d: int) -> None:
    v = NORMAL[:, :d]
    coefficients = [torch.from_numpy(scipy.fft.dct(chunk.numpy(), norm="ortho")) for chunk in v.split(8, dim=1)]
    lost = sum(float(c.square().sort(descending=True).values[:, k:].sum()) for c in coefficients)
    found = DCTTopK(k, chunk=8).compress(v, WorkerRandom(0, [0])).decode()
    assert float((found - v).square().sum()) == pytest.approx(lost, rel=1e-12, abs=1e-12)
    assert DCTTopK(k, chunk=8).delta(d) == min(1, k / min(8, d))


def test_all_coefficients_give_the_vector_back_and_one_a_wave() -> None:
    torch.testing.assert_close(DCTTopK(8, 8).compress(NORMAL, WorkerRandom(0, [0])).decode(), NORMAL)
    wave = torch.cos(torch.pi * 3 * (2 * torch.arange(16, dtype=torch.float64)[None] + 1) / 32)
    torch.testing.assert_close(DCTTopK(1, 16).compress(wave, WorkerRandom(0, [0])).decode(), wave)


@pytest.mark.parametrize(("d", "values", "index_bytes"), [(64, 4, 3), (128, 8, 6), (70, 8, 3 + 2), (0, 0, 0)])
def test_bytes_of_cosine_coefficients(d: int, values: int, index_bytes: int) -> None:
    """4 indices of 6 bits a chunk, of 3 bits in a last one of 6 coordinates."""
    sent = DCTTopK(4, 64).compress(torch.ones(2, d), WorkerRandom(0, range(2))).wire_bytes.tolist()
    assert sent == [4 * values + index_bytes] * 2


def test_chunks_of_each_tensor() -> None:
    layout = Layout.of([("a", (3, 4)), ("b", (12,))])
    found = PerTensor(DCTTopK(2, 8)).bind(layout).compress(NORMAL, WorkerRandom(0, [0])).decode()
    pieces = [DCTTopK(2, 8).compress(piece, WorkerRandom(0, [0])).decode() for piece in NORMAL.split(12, dim=1)]
    torch.testing.assert_close(found, torch.cat(pieces, 1))
    assert not torch.allclose(found, Blockwise(TopK(k=2), 8).compress(NORMAL, WorkerRandom(0, [0])).decode())


def test_a_transform_that_would_be_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 4096 coordinates, got 5000"):
        DCTTopK(3, None).bind(Layout.flat(5000))
    with pytest.raises(ValueError, match=r"chunk must lie in \[1, 4096\], got 5000"):
        DCTTopK(3, 5000)
    with pytest.raises(ValueError, match=r"k must lie in \[1, chunk\] = \[1, 8\], got 9"):
        DCTTopK(9, 8)
