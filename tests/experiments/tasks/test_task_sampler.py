"""Laws of the sampler: pure in (seed, step, worker), blind to who else is asked, every sample equally often."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from commeff.experiments.tasks.known import Noise
from commeff.experiments.tasks.partition import Partition
from commeff.experiments.tasks.sampler import WINDOW, Sampler, philox

SIZES = (1, 2, 5, 40, 301)  # fewer than a batch, about a batch, more than the mean


def partition() -> Partition:
    return Partition(tuple(np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])))


def everyone(sampler: Sampler, steps: int) -> torch.Tensor:
    """(steps, n, b)"""
    return torch.stack([sampler.batch(step, range(len(SIZES))) for step in range(steps)])


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_every_prefix_of_a_stream_visits_the_worker_s_samples_equally_often(batch: int) -> None:
    drawn = everyone(Sampler(partition(), batch, seed=0), 50)
    for worker, own in enumerate(partition().indices):
        stream = drawn[:, worker].flatten().numpy()
        assert set(stream) <= set(own)
        for prefix in (1, batch, len(own), 7 * batch, len(stream)):
            counts = np.bincount(stream[:prefix], minlength=sum(SIZES))[own]
            assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("batch", [3, 8])
def test_a_batch_is_a_pure_function_of_seed_step_and_worker(batch: int) -> None:
    walked = everyone(Sampler(partition(), batch, seed=5), 200)
    asked = Sampler(partition(), batch, seed=5)
    generator = np.random.default_rng(0)
    for step in generator.permutation(200):
        workers = generator.permutation(len(SIZES))[: generator.integers(1, 6)].tolist()
        assert torch.equal(asked.batch(int(step), workers), walked[int(step), workers])


def test_seeds_passes_and_workers_have_different_orders() -> None:
    parts = Partition((np.arange(100), np.arange(100)))
    sampler, other = Sampler(parts, 100, seed=0), Sampler(parts, 100, seed=1)
    orders = [sampler.batch(0, [0]), sampler.batch(1, [0]), sampler.batch(0, [1]), other.batch(0, [0])]
    assert all(torch.equal(order.sort().values, torch.arange(100)[None]) for order in orders)
    assert len({tuple(order[0].tolist()) for order in orders}) == 4


def test_passes_are_uniform_over_orders() -> None:
    """All six orders of three samples, chi-squared with 5 degrees of freedom: 99.9 % quantile 20.5."""
    sampler = Sampler(Partition((np.arange(3),)), 3, seed=0)
    codes = [int(sampler.batch(step, [0])[0] @ torch.tensor([9, 3, 1])) for step in range(3000)]
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == 6
    assert ((counts - 500) ** 2 / 500).sum() < 20.5


def test_the_counter_moves_through_one_stream() -> None:
    whole = philox(3, 1, 0).random_raw(40)
    assert np.array_equal(philox(3, 1, 5).random_raw(20), whole[20:])
    assert not np.intersect1d(whole, philox(3, 1, 0, stream=1).random_raw(40)).size


@pytest.mark.parametrize("dimension", [3, 5000, 40_000])  # of which 16, 4 and 1 steps are kept
def test_noise_is_one_stream_a_window_however_much_is_kept(dimension: int) -> None:
    noise, steps = Noise(2, workers=2, dimension=dimension, scale=0.5), [0, 1, 2, 15, 16, 37, 5, 6, 1]
    for step in steps:
        generator = np.random.Generator(philox(2, 1, 0, stream=step // WINDOW + 1))
        whole = 0.5 * generator.standard_normal((WINDOW, dimension))
        assert np.array_equal(noise.at(step, [1])[0], whole[step % WINDOW])
