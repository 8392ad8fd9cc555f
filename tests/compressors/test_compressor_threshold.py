"""Messages whose length values decide: what they keep, how they are filled up, what a memory makes of them."""

from __future__ import annotations

import pytest
import torch

from commeff import Communicator
from commeff.compressors import (
    QSGD,
    Blockwise,
    Coded,
    Layout,
    PerTensor,
    Repeated,
    TernGrad,
    Threshold,
    TopK,
    WorkerRandom,
    contractive,
    packed_bytes,
)
from commeff.compressors.message import agreed
from commeff.compressors.packing import increasing_bytes
from commeff.transforms import ErrorFeedback

RANDOM = WorkerRandom(0, range(3))


def rows(d: int = 50) -> torch.Tensor:
    """Rows of which ever more is large, the first being 0."""
    return WorkerRandom(1, range(3)).normal(d) * torch.tensor([[0.0], [1.0], [3.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_above_is_kept_as_it_is(dtype: torch.dtype) -> None:
    v = rows().to(dtype)
    message = Threshold(0.7).compress(v, RANDOM)
    assert torch.equal(message.decode(), v.where(v.abs() >= 0.7, 0))
    count = int((v.abs() >= 0.7).sum(1).max())
    assert message.lengths == (count,)
    assert message.wire_bytes.tolist() == [count * dtype.itemsize + -(-6 * count // 8)] * 3
    assert ((message.decode() - v).double().square().sum(1) <= Threshold(0.7).absolute(50)).all()
    assert Threshold(100.0).compress(v, RANDOM).wire_bytes.tolist() == [0, 0, 0]


def test_ends_of_the_range() -> None:
    v = torch.tensor([[0.7, -0.7, torch.nan, torch.inf, -0.0, 0.6999]])
    found = Threshold(0.7).compress(v, WorkerRandom(0, [0])).decode()
    kept = torch.tensor([[True, True, True, True, False, False]])
    torch.testing.assert_close(found, v.where(kept, 0), equal_nan=True, rtol=0, atol=0)
    assert Threshold(0.7).compress(torch.empty(2, 0), WorkerRandom(0, range(2))).decode().shape == (2, 0)
    for value in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="value must be a number above 0"):
            Threshold(value)


@pytest.mark.parametrize(
    "compressor",
    [
        *(Threshold(0.7), Blockwise(Threshold(0.7), 8), PerTensor(Threshold(0.7)), Repeated(Threshold(0.7), 2)),
        *(Coded(QSGD(3)), Blockwise(Coded(TernGrad()), 8)),
    ],
    ids=repr,
)
def test_longer_messages_say_the_same(compressor: Threshold) -> None:
    layout = Layout.of([("a", (5, 6)), ("b", (20,))])
    bound = compressor.bind(layout)
    message, other = bound.compress(rows(), RANDOM), bound.compress(2 * rows(), RANDOM)
    longer, same = agreed([message, other])
    assert longer.lengths == same.lengths == tuple(map(max, message.lengths, other.lengths))
    assert torch.equal(longer.decode(), message.decode())
    assert torch.equal(same.form.from_buffer(longer.to_buffer()).decode(), message.decode())
    out, weights = torch.zeros(2, 50), torch.ones(2, 3)
    longer.add_to(out, weights)
    torch.testing.assert_close(out, weights @ message.decode())
    assert longer.row_bytes >= message.row_bytes


def test_a_message_of_some_rows_is_as_long_as_these_need() -> None:
    message = Threshold(0.7).compress(rows(), RANDOM)
    assert message.select([0]).row_bytes == 0 < message.select([1]).row_bytes < message.select([0, 2]).row_bytes
    assert message.select([0, 2]).row_bytes == message.row_bytes


@pytest.mark.parametrize("compressor", [QSGD(1), QSGD(3), QSGD(200), QSGD(3, norm="max"), TernGrad()], ids=repr)
@pytest.mark.parametrize("d", [1, 50, 1000])
def test_coded_levels_are_the_levels(compressor: QSGD, d: int) -> None:
    v = rows(d)
    plain, coded = compressor.compress(v, RANDOM), Coded(compressor).compress(v, RANDOM)
    assert torch.equal(coded.decode(), plain.decode())
    k = int((plain.decode() != 0).sum(1).max())
    levels = 1 if isinstance(compressor, TernGrad) else compressor.levels
    assert coded.lengths == (k,)
    assert coded.row_bytes == 4 + increasing_bytes(d + k, k) + packed_bytes(k, (2 * levels - 1).bit_length())
    assert coded.select([0]).row_bytes == 4 + increasing_bytes(d, 0)
    for row in range(3):
        assert torch.equal(coded.select([row]).decode(), plain.decode()[[row]])
    assert Coded(compressor).omega(d) == compressor.omega(d)


@pytest.mark.parametrize(("compressor", "above"), [(QSGD(1), 1.1), (QSGD(4), 1.3), (TernGrad(), 1.2)])
def test_coded_levels_are_not_far_from_their_entropy(compressor: QSGD, above: float) -> None:
    v = WorkerRandom(1, [0]).normal(300_000)
    decoded = compressor.compress(v, WorkerRandom(0, [0])).decode()
    _, counts = (decoded / decoded[decoded != 0].abs().min()).round().unique(return_counts=True)
    shares = counts.double() / counts.sum()
    ideal = -float((shares * shares.log2()).sum()) * v.shape[1]
    assert ideal < 8 * Coded(compressor).compress(v, WorkerRandom(0, [0])).row_bytes < above * ideal


def test_only_levels_are_coded() -> None:
    for compressor in (TopK(k=3), QSGD(4, bucket=8)):
        with pytest.raises(ValueError, match=r"QSGD without a bucket, or TernGrad, got .* Blockwise\(Coded"):
            Coded(compressor)


def test_all_pay_for_the_longest_and_for_agreeing() -> None:
    communicator, v = Communicator(workers=3), rows()
    message = Threshold(0.7).compress(v, RANDOM)
    mean = communicator.average(message)
    torch.testing.assert_close(mean, message.decode().mean(0, keepdim=True).expand(3, -1))
    agreeing, sending = communicator.ledger.rows
    assert (agreeing.kind, agreeing.payload_bytes, agreeing.wire_bytes) == ("all_gather", 8, 16)
    assert (sending.kind, sending.payload_bytes) == ("all_gather", message.row_bytes)
    communicator = Communicator(workers=3)
    communicator.average(TopK(k=3).compress(v, RANDOM))
    assert len(communicator.ledger.rows) == 1


def test_a_memory_stays_as_small_as_the_threshold_whatever_comes() -> None:
    """With error feedback no coordinate of the memory ever reaches the threshold, and in the end all has been sent."""
    assert contractive(Threshold(0.7)).for_dimension(50) == Threshold(0.7)
    communicator, encoder, v = Communicator(workers=3), ErrorFeedback(Threshold(0.7)), rows().double()
    encoder.start(v, Layout.flat(50), communicator)
    sent = torch.zeros_like(v)
    for communicator.step in range(30):
        sent += encoder.encode(v, communicator, "up").decode()
        assert encoder.error.abs().max() < 0.7
        torch.testing.assert_close(sent + encoder.error, (communicator.step + 1) * v)
