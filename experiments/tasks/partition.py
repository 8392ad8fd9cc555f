"""Partitions of the training samples over the workers: pure functions of (labels, workers, seed).

Three rules: `iid` (everybody sees the same distribution), `dirichlet` (label skew set by one number) and `shards`
(every worker sees a few classes only). Each returns a `Partition`: every sample belongs to exactly one worker and no
worker is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from commeff import require

Indices = NDArray[np.int64]
Rule = Callable[[NDArray, int, int], "Partition"]


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of each worker. indices[i]: sorted sample numbers held by worker i.

    >>> Partition((np.array([0, 3, 4]), np.array([1]))).weights
    array([0.75, 0.25])
    """

    indices: tuple[Indices, ...]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(n,) numbers n_i of samples held."""
        return np.array([len(rows) for rows in self.indices])

    @property
    def weights(self) -> NDArray[np.float64]:
        """(n,) p_i = n_i / N: with these, sum_i p_i f_i is the mean loss over all samples."""
        return self.sizes / self.sizes.sum()


def iid(labels: NDArray, workers: int, seed: int) -> Partition:
    """A random permutation cut into n parts whose sizes differ by at most one.

    >>> iid(np.zeros(7), workers=3, seed=0).sizes
    array([3, 2, 2])
    """
    _enough("iid", len(labels), workers)
    return _partition(np.array_split(np.random.default_rng(seed).permutation(len(labels)), workers))


def dirichlet(labels: NDArray, workers: int, seed: int, alpha: float) -> Partition:
    """Label skew: for every class c draw q_c ~ Dir(alpha, ..., alpha) over the n WORKERS, and deal class c like that.

    alpha -> infinity tends to equal shares of every class, alpha -> 0 gives each class to one worker. Sizes differ
    between workers.

    Reading: Hsu, Qi and Brown (arXiv 1909.06335) draw for each worker a distribution over CLASSES, Dir(alpha p), at
    equal sizes. The per-class splitting done here is the transposed form of Yurochkin et al. (arXiv 1905.12022), and
    what most public code with the same alpha runs. Workers left empty get one sample each from whoever holds most.

    >>> dirichlet(np.arange(100) % 2, workers=4, seed=0, alpha=1e6).sizes.tolist()
    [25, 25, 25, 25]
    """
    require.positive(alpha=alpha)
    require_classes(labels, "partition dirichlet", "; take shards, which sorts by target, or iid")
    _enough("dirichlet", len(labels), workers)
    rng = np.random.default_rng(seed)
    parts: list[list[Indices]] = [[] for _ in range(workers)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(workers, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
        for part, piece in zip(parts, np.split(members, cuts), strict=True):
            part.append(piece)
    return _partition(_nobody_empty([np.concatenate(part) for part in parts]))


def shards(labels: NDArray, workers: int, seed: int, per_worker: int) -> Partition:
    """Sort by label, cut into n * per_worker shards of (nearly) equal size, deal per_worker random ones to each worker.

    With k shards a worker sees at most about k classes (McMahan et al., arXiv 1602.05629, section 3).

    >>> labels = np.repeat(np.arange(4), 10)
    >>> [sorted(set(labels[own].tolist())) for own in shards(labels, workers=4, seed=1, per_worker=1).indices]
    [[3], [1], [0], [2]]
    """
    require.at_least(1, shards=per_worker)
    _enough(f"shards ({per_worker} a worker)", len(labels), workers, per_worker)
    rng = np.random.default_rng(seed)
    mixed = rng.permutation(len(labels))
    by_label = mixed[np.argsort(labels[mixed], kind="stable")]
    pieces = np.array_split(by_label, workers * per_worker)
    hands = rng.permutation(workers * per_worker).reshape(workers, per_worker)
    return _partition([np.concatenate([pieces[piece] for piece in hand]) for hand in hands])


def require_classes(labels: NDArray, what: str, advice: str = "") -> None:
    """Refuse targets that are no whole numbers.

    >>> require_classes(np.array([0.5, 1.0]), "partition dirichlet", "; take shards")
    Traceback (most recent call last):
    ValueError: partition dirichlet needs classes, got targets such as 0.5, each of which would be one; take shards
    """
    if (numbers := labels[labels != np.rint(labels)]).size:
        got = f"targets such as {numbers.flat[0]:g}, each of which would be one"
        raise ValueError(f"{what} needs classes, got {got}{advice}")


def split(rule: str, labels: NDArray, workers: int, seed: int, alpha: float, per_worker: int) -> Partition:
    """The partition by the rule called `rule`; the one place where the names are resolved.

    >>> split("iid", np.zeros(4), workers=2, seed=0, alpha=0.3, per_worker=2).weights
    array([0.5, 0.5])
    >>> split("sorted", np.zeros(4), workers=2, seed=0, alpha=0.3, per_worker=2)
    Traceback (most recent call last):
    ValueError: partition must be one of iid, dirichlet, shards, got 'sorted'
    """
    rules: dict[str, Rule] = {
        "iid": iid,
        "dirichlet": partial(dirichlet, alpha=alpha),
        "shards": partial(shards, per_worker=per_worker),
    }
    return require.choose(rules, partition=rule)(labels, workers, seed)


def _partition(parts: list[Indices]) -> Partition:
    return Partition(tuple(np.sort(part) for part in parts))


def _enough(rule: str, samples: int, workers: int, per_worker: int = 1) -> None:
    require.at_least(1, workers=workers)
    if workers * per_worker > samples:
        needed = workers * per_worker
        raise ValueError(
            f"partition {rule}: {workers} workers need at least {needed} samples, there are {samples}: take fewer"
        )


def _nobody_empty(parts: list[Indices]) -> list[Indices]:
    """One sample for every empty worker, taken from whoever holds most at that moment (the first of equals)."""
    parts = list(parts)
    for empty in [worker for worker, part in enumerate(parts) if not len(part)]:
        richest = int(np.argmax([len(part) for part in parts]))
        parts[richest], parts[empty] = parts[richest][:-1], parts[richest][-1:]
    return parts


def held_out(labels: NDArray, size: int) -> tuple[Tensor, Tensor]:
    """Numbers of the training and of the `size` validation samples: stratified, random order, the same at every call.

    >>> train, validation = held_out(np.arange(10) % 2, size=4)
    >>> len(train), sorted((validation % 2).tolist())
    (6, [0, 0, 1, 1])
    """
    from sklearn.model_selection import train_test_split  # late: a second of import that quadratics do not need

    rows, out = train_test_split(np.arange(len(labels)), test_size=size, stratify=labels, random_state=0)
    return torch.from_numpy(rows), torch.from_numpy(out)
