"""Wrappers are what their parts say: identities between compositions."""

from __future__ import annotations

import pytest
import torch

from commeff.compressors import (
    QSGD,
    Blockwise,
    Composed,
    Compressor,
    Contractive,
    Dense,
    Int8,
    Layout,
    Natural,
    PerTensor,
    RandomK,
    Repeated,
    ScaledSign,
    Shrunk,
    TernGrad,
    TopK,
    WorkerRandom,
    contractive,
)

LAYOUT = Layout.of([("weight", (5, 6)), ("bias", (5,)), ("scalar", ())])


def random(workers=4):
    return WorkerRandom(0, range(workers), step=2)


def vectors(d=36, rows=4):
    return WorkerRandom(1, range(rows)).normal(d, dtype=torch.float64)


def decoded(compressor, values, randomness=None):
    return compressor.compress(values, randomness or random(len(values))).decode()


@pytest.mark.parametrize(("k", "rounds"), [(1, 1), (1, 5), (3, 4), (5, 7), (7, 9)])
def test_repeated_top_k_is_top_of_all_rounds(k, rounds):
    v = vectors()
    assert torch.equal(decoded(Repeated(TopK(k=k), rounds), v), decoded(TopK(k=min(36, k * rounds)), v))


def test_enough_rounds_send_everything():
    assert torch.equal(decoded(Repeated(TopK(k=5), 8), vectors()), vectors())


def test_one_round_is_the_compressor_itself():
    v = vectors()
    assert torch.equal(decoded(Repeated(TopK(k=5), 1), v), decoded(TopK(k=5), v))
    once = Repeated(QSGD(1), 1)
    assert torch.equal(decoded(once, v), decoded(Shrunk(QSGD(1), 1 / (1 + QSGD(1).omega(36))), v, random().fork(0)))


def test_rounds_recurse_on_what_is_missing():
    """Repeated(C, R) is C, then Repeated(C, R - 1) of the rest with the later rounds' randomness."""
    v, compressor = vectors(), ScaledSign()
    y = torch.zeros_like(v)
    for number in range(4):
        y = y + decoded(compressor, v - y, random().fork(number))
    torch.testing.assert_close(decoded(Repeated(compressor, 4), v), y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_repeated_constants_messages_and_bytes(rounds):
    repeated = Repeated(TopK(ratio=0.25), rounds)
    assert repeated.delta(36) == pytest.approx(1 - 0.75**rounds)
    assert Repeated(QSGD(1), rounds).delta(36) == pytest.approx(1 - (6 / 7) ** rounds)  # 1 - 1/(1 + omega), omega = 6
    assert Repeated(Natural(), rounds).omega(36) == pytest.approx(1 / 8**rounds)
    message = repeated.bind(LAYOUT).compress(vectors(), random())
    assert message.count == rounds
    assert message.wire_bytes.tolist() == [rounds * (9 * 8 + 7)] * 4


def test_rounds_draw_independently():
    v = vectors(1000, 1)
    first, second = Repeated(RandomK(k=100, scaled=False), 2).compress(v, random(1)).inner
    overlap = set(first.indices()[0].tolist()) & set(second.indices()[0].tolist())
    assert len(overlap) < 40


def test_per_tensor_compresses_each_tensor():
    v, randomness = vectors(), random()
    for compressor in (TopK(ratio=0.2), QSGD(3), RandomK(ratio=0.5), Natural()):
        bound = PerTensor(compressor).bind(LAYOUT)
        pieces = [decoded(compressor, v[:, a:b], randomness.shifted(a)) for a, b in ((0, 30), (30, 35), (35, 36))]
        assert torch.equal(decoded(bound, v, randomness), torch.cat(pieces, 1))
    assert PerTensor(QSGD(3)).bind(LAYOUT).omega(36) == QSGD(3).omega(30)
    assert PerTensor(ScaledSign()).bind(LAYOUT).delta(36) == 1 / 30
    assert PerTensor(TopK(ratio=0.2)).bind(LAYOUT).omega(36) is None


def test_a_policy_names_tensors_or_their_sizes():
    """The first rule that matches decides, then the size; omega and delta are the worst of all."""
    v, randomness = vectors(), random()
    policy = PerTensor(QSGD(4), below=5, rules=[("w*", TopK(k=3)), ("*", QSGD(1)), ("bias", Dense())])
    bound = policy.bind(LAYOUT)
    assert bound._bound == (TopK(k=3), QSGD(1), QSGD(1))
    small = PerTensor(TopK(k=3), below=6).bind(LAYOUT)
    assert small._bound == (TopK(k=3), Dense(), Dense())
    assert torch.equal(decoded(small, v, randomness)[:, 30:], v[:, 30:])
    assert torch.equal(decoded(small, v, randomness)[:, :30], decoded(TopK(k=3), v[:, :30]))
    assert (small.delta(36), small.omega(36), PerTensor(QSGD(4), below=6).bind(LAYOUT).delta(36)) == (
        3 / 30,
        None,
        None,
    )
    assert PerTensor(QSGD(4), below=31).bind(LAYOUT).omega(36) == 0
    assert PerTensor(Dense(), rules=[("w*", RandomK(k=3, shared=True))]).summable
    assert not PerTensor(Dense(), rules=[("w*", TopK(k=3))]).summable
    assert small.compress(v, randomness).wire_bytes.tolist() == [3 * 8 + 2 + 6 * 8] * 4


def test_a_policy_that_is_none_is_refused():
    with pytest.raises(ValueError, match="below must be at least 0, got -1"):
        PerTensor(Dense(), below=-1)
    with pytest.raises(ValueError, match=r"pairs of a pattern and a compressor, got \('a', 3\)"):
        PerTensor(Dense(), rules=[("a", 3)])


def test_equal_tensors_draw_different_coordinates():
    twice = Layout.of([("a", (500,)), ("b", (500,))])
    decoded_twice = decoded(PerTensor(RandomK(k=50, scaled=False)).bind(twice), torch.ones(1, 1000), random(1))
    assert not torch.equal(decoded_twice[:, :500], decoded_twice[:, 500:])


def test_per_tensor_needs_tensors():
    with pytest.raises(ValueError, match="bind"):
        PerTensor(QSGD(3)).compress(vectors(), random())
    with pytest.raises(ValueError, match="at least one tensor"):
        PerTensor(QSGD(3)).bind(Layout(()))
    with pytest.raises(ValueError, match="k must be at most d = 1, got"):
        PerTensor(TopK(k=2)).bind(LAYOUT)


def test_blockwise_treats_blocks_as_vectors():
    v = vectors()
    pieces = [decoded(ScaledSign(), v[:, a : a + 10]) for a in (0, 10, 20, 30)]
    assert torch.equal(decoded(Blockwise(ScaledSign(), 10), v), torch.cat(pieces, 1))
    assert torch.equal(decoded(Blockwise(ScaledSign(), 100), v), decoded(ScaledSign(), v))
    assert torch.equal(decoded(QSGD(3, bucket=7), v), decoded(Blockwise(QSGD(3), 7), v))
    assert torch.equal(decoded(Int8(7), v), decoded(Blockwise(Int8(None), 7), v))


def test_blocks_draw_independently():
    blocks = decoded(Blockwise(RandomK(k=50, scaled=False), 500), torch.ones(1, 1500), random(1)).view(3, 500)
    assert not torch.equal(blocks[0], blocks[1])
    assert not torch.equal(blocks[0], blocks[2])


def test_blockwise_constants_are_the_worst_of_its_lengths():
    assert Blockwise(TopK(k=2), 8).delta(20) == 2 / 8
    assert Blockwise(TernGrad(), 8).omega(20) == TernGrad().omega(8)
    assert Blockwise(TernGrad(), 8).omega(5) == TernGrad().omega(5)
    with pytest.raises(ValueError, match="k must be at most d = 1, got"):
        Blockwise(TopK(k=2), 5).bind(Layout.flat(16))
    with pytest.raises(ValueError, match="block must be at least 1, got"):
        Blockwise(TopK(k=2), 0)


def test_composed_with_dense_is_the_inner_one():
    v = vectors()
    for inner in (TopK(k=4), RandomK(k=4)):
        assert torch.equal(decoded(Composed(Dense(), inner), v), decoded(inner, v, random().fork(0)))
    with pytest.raises(ValueError, match="inner must be a Sparsifier, got"):
        Composed(QSGD(1), ScaledSign())


class Nothing(Compressor):
    """Neither unbiased nor contractive."""

    scope = "whole"

    def compress(self, vectors, random):
        return Dense().compress(2 * vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return None


def test_contractive_resolves_when_d_is_known():
    layout = Layout.flat(36)
    assert contractive(TopK(k=3)).bind(layout) == TopK(k=3)
    assert contractive(Natural()).bind(layout) == Natural()
    assert contractive(QSGD(1)).bind(layout) == Shrunk(QSGD(1), 1 / 7)
    assert contractive(QSGD(100)).bind(layout) == QSGD(100)
    assert contractive(contractive(QSGD(1))) == Contractive(QSGD(1))
    assert contractive(QSGD(1)).delta(36) == pytest.approx(1 / 7)
    assert contractive(QSGD(1)).omega(36) is None
    v = vectors()
    assert torch.equal(decoded(contractive(QSGD(1)), v), decoded(QSGD(1), v) * (1 / 7))
    with pytest.raises(ValueError, match="must be contractive or unbiased, got"):
        contractive(Nothing()).bind(layout)
    with pytest.raises(ValueError, match="must be contractive or unbiased, got"):
        Repeated(Nothing(), 2).bind(layout)


def test_scopes_and_sums_come_from_the_parts():
    assert Repeated(Natural(), 2).scope == contractive(Dense()).scope == "coordinate"
    assert Repeated(PerTensor(TopK(ratio=0.1)), 2).scope == "tensor"
    assert Composed(Natural(), TopK(k=1)).scope == Blockwise(Dense(), 2).scope == "whole"
    shared = RandomK(k=2, shared=True)
    summable = (Dense(), shared, Repeated(shared, 2), PerTensor(shared), Composed(Dense("bfloat16"), shared))
    assert all(compressor.summable for compressor in summable)
    others = (TopK(k=2), RandomK(k=2), QSGD(2), Composed(Natural(), shared), Composed(Dense(), RandomK(k=2)))
    assert not any(compressor.summable for compressor in others)


def test_composed_compresses_the_values_with_randomness_of_its_own():
    v = vectors()
    message = Composed(QSGD(2), TopK(k=9)).compress(v, random())
    kept = v.gather(1, message.indices())
    assert torch.equal(message.values.decode(), decoded(QSGD(2), kept, random().fork(1)))
