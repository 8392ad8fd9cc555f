"""Messages: what a process does with rows it hosts, receives or passes on; what NaN, threads and memory do to them."""

from __future__ import annotations

import pytest
import torch

from commeff.compressors import (
    QSGD,
    CountSketch,
    DCTTopK,
    Dense,
    Eden,
    Int8,
    Layout,
    Natural,
    OneBit,
    PerTensor,
    RandomK,
    ScaledSign,
    TernGrad,
    TopK,
    WorkerRandom,
    unpack,
)
from commeff.compressors.laws import LAYOUT, concrete
from commeff.compressors.message import agreed
from commeff.compressors.packing import code_bits
from commeff.compressors.quantised import codes

SAMPLES = [
    sample.bind(LAYOUT)
    for kind in concrete()
    if kind.__module__.startswith("commeff.compressors.")
    for sample in kind.samples()
]


def random(workers):
    return WorkerRandom(0, range(workers))


@pytest.mark.parametrize("compressor", SAMPLES, ids=repr)
def test_rows_can_be_selected_and_put_together(compressor):
    message = compressor.compress(random(4).normal(LAYOUT.d), random(4))
    decoded = message.decode()
    for rows in ([2, 0], torch.tensor([3]), slice(1, 3), []):
        chosen = message.select(rows)
        assert torch.equal(chosen.decode(), decoded[rows])
        assert chosen.rows == len(chosen.wire_bytes) == len(decoded[rows])
    halves = agreed([message.select(slice(0, 1)), message.select(slice(1, 4))])
    whole = message.form.with_parts([torch.cat(parts) for parts in zip(*(half.parts for half in halves), strict=True)])
    assert torch.equal(whole.decode(), decoded)
    assert message.form.rows == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("compressor", SAMPLES, ids=repr)
def test_a_row_that_is_not_finite_spoils_no_other(compressor, value):
    vectors = random(3).normal(LAYOUT.d)
    clean = compressor.compress(vectors, random(3)).decode()
    vectors[1, 7] = value
    spoiled = compressor.compress(vectors, random(3)).decode()
    assert torch.equal(spoiled[[0, 2]], clean[[0, 2]])


@pytest.mark.parametrize(
    "compressor", [Dense(), TopK(k=3), QSGD(2), TernGrad(), ScaledSign(), Natural(), Int8(8)], ids=repr
)
def test_divergence_is_seen_by_the_receiver(compressor):
    for value in (float("nan"), float("inf")):
        vectors = torch.ones(1, 20)
        vectors[0, 7] = value
        assert not compressor.compress(vectors, random(1)).decode().isfinite().all()


@pytest.mark.parametrize(
    "compressor",
    [
        *(QSGD(7), TernGrad(), ScaledSign(), Int8(), TopK(ratio=0.01), Natural()),
        *(OneBit(), Eden(2), CountSketch(99), DCTTopK(3)),
    ],
    ids=repr,
)
def test_long_rows_do_not_depend_on_threads_or_company(compressor):
    vectors = random(3).normal((1 << 17) + 1001)
    together = compressor.compress(vectors, random(3))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        alone = compressor.compress(vectors[1:2], WorkerRandom(0, [1]))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(part[1:2], own) for part, own in zip(together.parts, alone.parts, strict=True))
    weights = torch.tensor([[0.5, -1.0, 2.0]])
    out = torch.ones(1, vectors.shape[1])
    together.add_to(out, weights)
    torch.testing.assert_close(out, 1 + weights @ together.decode(), rtol=1e-5, atol=1e-5)


def test_dense_shares_memory_and_casts_only_when_asked():
    vectors = random(2).normal(6)
    assert Dense().compress(vectors, random(2)).parts[0].data_ptr() == vectors.data_ptr()
    assert Dense().compress(vectors[:, 1:4], random(2)).parts[0].data_ptr() == vectors[:, 1:].data_ptr()
    assert Dense("bfloat16").compress(vectors, random(2)).parts[0].dtype is torch.bfloat16
    with pytest.raises(ValueError, match="dtype must be None or one of"):
        Dense("int8")


def test_scales_are_float32_at_least():
    for dtype, scale in (
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ):
        for compressor in (QSGD(3), TernGrad(), ScaledSign(), Int8(None)):
            assert compressor.compress(torch.ones(1, 9, dtype=dtype), random(1)).parts[0].dtype is scale


def test_an_adding_message_needs_no_dense_rows():
    """The out vector is too large for n dense rows to be made in passing; only k numbers each are touched."""
    d, n = 1 << 22, 300
    compressor = RandomK(k=5)
    message = compressor.compress(torch.ones(1, 1).expand(n, d), random(n))
    out = torch.zeros(1, d)
    message.add_to(out, torch.ones(1, n))
    assert float(out.sum()) == pytest.approx(n * d, rel=1e-5)


def test_count_of_nested_messages():
    layout = Layout.of([("a", (4,)), ("b", (4,))])
    assert PerTensor(TopK(k=1)).bind(layout).compress(torch.ones(1, 8), random(1)).count == 1


def test_codes_never_leave_their_range():
    """A scale that rounding left a little too small, and u next to 1, must not spill into the neighbouring code."""
    vectors, scale = torch.tensor([[1.0, -1.0, 0.0]]), torch.tensor([[1 - 2**-20]])
    for levels in (1, 7, 127, 200):
        assert codes(vectors, scale, levels, 1 - 2.0**-24).tolist() == [[2 * levels, 0, levels]]


@pytest.mark.parametrize("compressor", [QSGD(7), TernGrad(), Int8(None)], ids=repr)
def test_zero_is_the_middle_code_and_no_garbage(compressor):
    _, packed = compressor.compress(torch.zeros(1, 24), random(1)).parts
    levels = {QSGD: 7, TernGrad: 1, Int8: 127}[type(compressor)]
    assert unpack(packed, code_bits(2 * levels + 1), 24).unique().tolist() == [levels]
