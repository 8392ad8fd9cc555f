"""Laws of partitions: every sample once, nobody empty, pure in the seed, skew set by alpha and number of shards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from commeff.experiments.tasks.partition import Partition, dirichlet, iid, shards, split

LABELS = np.random.default_rng(7).integers(0, 10, 997)
RULES: dict[str, Callable[..., Partition]] = {
    "iid": iid,
    "dirichlet 0.01": partial(dirichlet, alpha=0.01),
    "dirichlet 1": partial(dirichlet, alpha=1.0),
    "shards 1": partial(shards, per_worker=1),
    "shards 3": partial(shards, per_worker=3),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def skew(labels: NDArray, parts: Partition) -> float:
    """Mean over samples of the total variation between the label distribution of their worker and that of all."""
    overall = np.bincount(labels, minlength=10) / len(labels)
    own = np.array([np.bincount(labels[part], minlength=10) / len(part) for part in parts.indices])
    return float(parts.weights @ np.abs(own - overall).sum(1) / 2)


@every_rule
@pytest.mark.parametrize("workers", [1, 2, 7, 100])
def test_every_sample_belongs_to_one_worker_and_nobody_is_empty(rule: Callable[..., Partition], workers: int) -> None:
    parts = rule(LABELS, workers, seed=3)
    assert np.array_equal(np.sort(np.concatenate(parts.indices)), np.arange(len(LABELS)))
    assert len(parts.indices) == workers
    assert min(parts.sizes) >= 1
    np.testing.assert_allclose(parts.weights, [len(part) / len(LABELS) for part in parts.indices], rtol=1e-15)


@every_rule
def test_a_partition_is_a_function_of_the_seed(rule: Callable[..., Partition]) -> None:
    first, again, other = (rule(LABELS, 7, seed=seed) for seed in (0, 0, 1))
    assert all(map(np.array_equal, first.indices, again.indices))
    assert not all(map(np.array_equal, first.indices, other.indices))


@pytest.mark.parametrize("seed", range(5))
def test_heterogeneity_falls_with_alpha_and_with_shards(seed: int) -> None:
    by_alpha = [skew(LABELS, dirichlet(LABELS, 8, seed, alpha)) for alpha in (0.01, 0.1, 1.0, 10.0, 1000.0)]
    by_shards = [skew(LABELS, shards(LABELS, 8, seed, k)) for k in (1, 4, 16, 64)]
    assert by_alpha == sorted(by_alpha, reverse=True)
    assert by_shards == sorted(by_shards, reverse=True)
    assert by_alpha[0] > 0.5 > 0.03 > by_alpha[-1]


def test_tiny_alpha_gives_each_class_to_one_worker_and_large_alpha_gives_equal_shares() -> None:
    tiny = dirichlet(LABELS, 4, seed=0, alpha=1e-6)
    assert all(sum(label in LABELS[part] for part in tiny.indices) == 1 for label in range(10))
    large = dirichlet(LABELS, 4, seed=0, alpha=1e8)
    counts = np.array([np.bincount(LABELS[part], minlength=10) for part in large.indices])
    assert np.abs(counts - np.bincount(LABELS) / 4).max() <= 1


@pytest.mark.parametrize("workers", [50, 199, 200])
def test_empty_workers_get_one_sample_from_the_richest(workers: int) -> None:
    labels = np.arange(200) % 2
    parts = dirichlet(labels, workers, seed=0, alpha=1e-3)
    assert min(parts.sizes) == 1
    assert parts.sizes.sum() == 200


def test_a_worker_with_k_shards_sees_few_classes() -> None:
    labels = np.repeat(np.arange(10), 20)
    assert all(len(np.unique(labels[part])) <= 2 for part in shards(labels, 10, seed=0, per_worker=2).indices)


@every_rule
@pytest.mark.parametrize("workers", [0, 998])
def test_too_many_or_no_workers_are_refused_in_one_line(rule: Callable[..., Partition], workers: int) -> None:
    with pytest.raises(ValueError, match=r"^.*(at least 1|there are 997).*$") as refusal:
        rule(LABELS, workers, seed=0)
    assert "\n" not in str(refusal.value)


def test_other_values_that_make_no_sense_are_refused() -> None:
    for alpha in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"alpha must be (above 0|finite)"):
            dirichlet(LABELS, 4, seed=0, alpha=alpha)
    with pytest.raises(ValueError, match="shards must be at least 1"):
        shards(LABELS, 4, seed=0, per_worker=0)
    with pytest.raises(ValueError, match=r"partition shards \(500 a worker\): 2 workers need at least 1000 samples"):
        shards(LABELS, 2, seed=0, per_worker=500)
    with pytest.raises(ValueError, match="partition must be one of iid, dirichlet, shards"):
        split("random", LABELS, 2, 0, alpha=1.0, per_worker=1)
