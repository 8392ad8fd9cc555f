"""WorkerRandom: addressed by worker and coordinate, uniform, independent."""

from __future__ import annotations

from math import erf, sqrt

import pytest
import torch

from commeff.compressors import TopK, WorkerRandom, choose, packed_bytes
from commeff.compressors.hashing import _mix_numpy, _mix_torch, mix, signed

LONG = (1 << 17) + 4321
DRAWS = {"bits": WorkerRandom.bits, "uniform": WorkerRandom.uniform, "normal": WorkerRandom.normal}


def draw(random, kind, columns, **options):
    return DRAWS[kind](random, columns, **options)


def excess(counts):
    """How many standard deviations chi^2 lies above its mean, for equally likely cells."""
    expected, freedom = counts.sum() / counts.numel(), counts.numel() - 1
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / sqrt(2 * freedom)


def correlation(a, b):
    """sqrt(N) times the correlation: standard normal if there is none."""
    a, b = (x.double().flatten() - x.double().mean() for x in (a, b))
    return abs(float((a * b).sum() / a.norm() / b.norm())) * sqrt(a.numel())


def test_three_versions_of_the_hash_agree():
    numbers = [0, 1, 5, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF]
    for version in (_mix_numpy, _mix_torch):
        words = torch.tensor([signed(number) for number in numbers])
        assert version(words).tolist() == [signed(mix(number)) for number in numbers]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", DRAWS)
def test_a_block_draws_what_the_whole_draws_there(kind, shared):
    random = WorkerRandom(3, [5, 9], step=7, path=("a",))
    whole = draw(random, kind, LONG, shared=shared)
    for start, stop in ((0, 1), (1, 2), (1, 1000), (7, LONG), (131071, 131075), (131072, LONG)):
        assert torch.equal(draw(random.shifted(start), kind, stop - start, shared=shared), whole[:, start:stop])
    assert torch.equal(draw(random.shifted(10).shifted(3), kind, 5), draw(random, kind, 18)[:, 13:])


@pytest.mark.parametrize("kind", DRAWS)
def test_rows_belong_to_workers_whoever_hosts_them(kind):
    workers = list(range(40))
    together = draw(WorkerRandom(3, workers), kind, 5001)
    for rows in ([0], [39, 3], workers[::-1]):
        assert torch.equal(draw(WorkerRandom(3, rows), kind, 5001), together[rows])
    assert torch.equal(draw(WorkerRandom(3, workers).select(slice(7, 9)), kind, 5001), together[7:9])
    assert draw(WorkerRandom(3, []), kind, 10).shape == (0, 10)


def test_shared_numbers_are_those_of_all_workers():
    one, other = WorkerRandom(3, [0, 1], path=("p",)), WorkerRandom(3, [8, 9, 10], path=("p",))
    assert torch.equal(one.uniform(50, shared=True)[:1].expand(3, -1), other.uniform(50, shared=True))
    assert torch.equal(one.choice(50, 7, shared=True)[0], other.choice(50, 7, shared=True)[2])
    assert torch.equal(one.choice_keys(shared=True), WorkerRandom(3, [], path=("p",)).choice_keys(shared=True))


def test_every_part_of_the_address_matters():
    base = WorkerRandom(0, [0], step=0, path=("a", 1))
    others = {
        "seed": WorkerRandom(1, [0], step=0, path=("a", 1)),
        "worker": WorkerRandom(0, [1], step=0, path=("a", 1)),
        "step": WorkerRandom(0, [0], step=1, path=("a", 1)),
        "path": WorkerRandom(0, [0], step=0, path=("a", "1")),
        "fork": base.fork(0),
        "next fork": base.fork(1),
        "block": base.split(2).select(slice(0, 1)),
        "next block": base.split(2).select(slice(1, 2)),
        "moved block": base.shifted(1).split(2).select(slice(0, 1)),
        "next coordinate": base.shifted(1),
        "server": WorkerRandom(0, [-1], step=0, path=("a", 1)),
    }
    draws = [base.uniform(40_000), *(other.uniform(40_000) for other in others.values()), base.uniform(40_000, True)]
    for i, first in enumerate(draws):
        for second in draws[:i]:
            assert correlation(first, second) < 4.5
    assert torch.equal(base.uniform(9), WorkerRandom(0, [0], step=0, path=("a", 1)).uniform(9))


def test_uniform_numbers_are_uniform():
    numbers = WorkerRandom(0, range(64)).uniform(20_000)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert torch.equal(numbers * 2**24, (numbers * 2**24).round())
    assert abs(excess(torch.histc(numbers, 256, 0, 1).double())) < 5
    pairs = (numbers[:, ::2] * 16).long() * 16 + (numbers[:, 1::2] * 16).long()
    assert abs(excess(torch.bincount(pairs.flatten(), minlength=256).double())) < 5
    neighbours = (numbers[:-1] * 16).long() * 16 + (numbers[1:] * 16).long()
    assert abs(excess(torch.bincount(neighbours.flatten(), minlength=256).double())) < 5
    assert correlation(numbers[:, :-1], numbers[:, 1:]) < 4.5
    assert correlation(numbers[:-1], numbers[1:]) < 4.5


def test_float64_refines_float32():
    random = WorkerRandom(0, range(3))
    fine, coarse = random.uniform(1001, dtype=torch.float64), random.uniform(1001)
    assert torch.equal((fine * 2**24).floor(), coarse.double() * 2**24)
    assert torch.equal(fine * 2**32, (fine * 2**32).round())
    with pytest.raises(ValueError, match="float32 or float64"):
        random.uniform(3, dtype=torch.bfloat16)


def test_every_bit_is_fair():
    bits = WorkerRandom(0, range(16)).bits(10_000)
    for shift in range(32):
        ones = ((bits >> shift) & 1).double()
        assert abs(float(ones.mean()) - 0.5) * 2 * sqrt(ones.numel()) < 4.5


def test_normal_numbers_are_normal():
    for dtype in (torch.float32, torch.float64):
        numbers = WorkerRandom(0, range(10)).normal(30_000, dtype=dtype).double().flatten()
        ordered, n = numbers.sort().values, numbers.numel()
        cumulative = torch.tensor([0.5 * (1 + erf(x / sqrt(2))) for x in ordered[::50].tolist()])
        distance = (cumulative - torch.arange(0, n, 50) / n).abs().max()
        assert float(distance) * sqrt(n) < 2  # Kolmogorov-Smirnov, p = 7e-4
        assert numbers.isfinite().all()


@pytest.mark.parametrize("d", [2, 3, 5, 10, 37, 1024])
def test_choice_is_uniform_without_replacement(d):
    draws, k = 200_000 if d < 40 else 5_000, min(d, 3)
    chosen = WorkerRandom(0, range(draws)).choice(d, k)
    assert (chosen.sort(1).values.diff(dim=1) > 0).all()
    assert chosen.min() >= 0
    assert chosen.max() < d
    for position in range(k):
        assert abs(excess(torch.bincount(chosen[:, position], minlength=d).double())) < 5
    if d < 40:
        pairs = torch.bincount(chosen[:, 0] * d + chosen[:, 1], minlength=d * d).view(d, d).double()
        assert pairs.diagonal().sum() == 0
        assert abs(excess(pairs[~torch.eye(d, dtype=torch.bool)])) < 5


def test_choice_from_many_is_uniform_too():
    d, draws = 1025, 100_000
    chosen = WorkerRandom(0, range(draws)).choice(d, 4)
    for position in range(4):
        assert abs(excess(torch.bincount(chosen[:, position], minlength=d).double())) < 5
    for first in range(3):
        cells = chosen[:, first] // 41 * 25 + chosen[:, first + 1] // 41
        counts, expected = torch.bincount(cells, minlength=625).double(), torch.full((25, 25), 41.0 * 41)
        expected = (expected - 41 * torch.eye(25)).flatten().double() * draws / (d * (d - 1))
        assert abs(float(((counts - expected) ** 2 / expected).sum()) - 624) / sqrt(2 * 624) < 5
    everything = WorkerRandom(0, [1, 2]).choice(70_001, 70_001).sort(1).values
    assert torch.equal(everything, torch.arange(70_001).expand(2, -1))


def test_a_receiver_repeats_the_choice_from_the_key():
    random = WorkerRandom(0, [4, 5, 6]).shifted(9)
    for d in (20, 5000):
        assert torch.equal(choose(random.choice_keys()[1:2], d, 11), random.choice(d, 11)[1:2])
        assert not torch.equal(random.shifted(1).choice(d, 11), random.choice(d, 11))
    with pytest.raises(ValueError, match="k must lie in "):
        random.choice(5, 6)


def test_blocks_split_like_rows():
    both = WorkerRandom(0, [3, 8]).split(5)
    assert both.rows == 10
    assert torch.equal(both.uniform(20)[5:], WorkerRandom(0, [8]).split(5).uniform(20))
    assert torch.equal(both.uniform(20, shared=True)[:5], WorkerRandom(0, [8]).split(5).uniform(20, shared=True))


def test_meta_tensors_of_any_size_are_drawn_and_compressed_at_once():
    random, d = WorkerRandom(0, range(2), path=("law",), device="meta"), 70_000_000_000
    assert random.uniform(d).shape == random.bits(d).shape == random.normal(d).shape == (2, d)
    assert random.choice(d, d // 100).shape == (2, d // 100)
    message = TopK(ratio=0.01).compress(torch.empty(2, d, device="meta"), random)
    assert message.row_bytes == d // 100 * 4 + packed_bytes(d // 100, 37)
