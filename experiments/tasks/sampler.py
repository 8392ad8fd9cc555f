"""What a worker draws at a step, as a pure function of (seed, step, worker).

It comes from a counter-based generator (Philox keyed by seed and worker), so steps can be drawn in any order, and a
worker's stream is the same whoever else is hosted here. `Stream` remembers one window of steps per worker, which
makes the usual walk through the steps cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.random import Philox
from numpy.typing import NDArray
from torch import Tensor

from commeff.experiments.tasks.partition import Partition

WINDOW = 16  # fewest steps drawn at a time: the cost of seeding a generator is shared by so many steps


def philox(seed: int, worker: int, block: int, stream: int = 0) -> Philox:
    """The generator of one worker, set to a block of four 64-bit words of one of its independent streams."""
    return Philox(key=np.array([seed, worker], np.uint64), counter=np.array([block, stream, 0, 0], np.uint64))


class Stream:
    """One item a step for each of n workers, drawn a window at a time.

    Parameters
    ----------
    draw : draw(worker, w) gives the items of steps [w * window, (w + 1) * window), shape (window, ...). Pure.
    workers : n, the number of workers there are.
    window : steps drawn at a time.

    >>> stream = Stream(lambda worker, w: 10 * worker + torch.arange(4 * w, 4 * w + 4), workers=3, window=4)
    >>> stream.at(5, [2, 0])
    tensor([25,  5])
    """

    def __init__(self, draw: Callable[[int, int], Tensor], workers: int, window: int) -> None:
        self._draw, self._window = draw, window
        self._held = np.full(workers, -1)  # which window each worker's row of the table holds
        first = draw(0, 0)
        self._table = torch.empty((workers, *first.shape), dtype=first.dtype)

    def at(self, step: int, workers: Sequence[int]) -> Tensor:
        """The items of `workers` at `step`, (w, ...)."""
        window, offset = divmod(step, self._window)
        rows = np.asarray(workers, dtype=np.int64)
        for worker in rows[self._held[rows] != window].tolist():
            self._table[worker] = self._draw(worker, window)
            self._held[worker] = window
        return self._table[torch.from_numpy(rows), offset]


class Sampler:
    """Batches of b samples for each worker: pass after pass over its own samples, each pass in a new random order.

    A worker's stream of samples is one permutation of its n_i indices after the other; step t takes numbers [t b,
    (t+1) b) of it. So no batch is short, a worker with n_i < b meets a sample several times in one batch, and in
    every prefix of the stream the counts of its samples differ by at most one.

    >>> sampler = Sampler(Partition((np.array([0, 1, 2, 3]), np.array([4, 5]))), batch=4, seed=0)
    >>> drawn = sampler.batch(0, [0, 1])
    >>> drawn.shape, sorted(drawn[0].tolist()), sorted(drawn[1].tolist())
    (torch.Size([2, 4]), [0, 1, 2, 3], [4, 4, 5, 5])
    """

    def __init__(self, partition: Partition, batch: int, seed: int) -> None:
        self._indices, self._size, self._seed = partition.indices, batch, seed
        workers = len(partition.indices)
        self._steps = max(WINDOW, -(-int(partition.sizes.sum()) // (workers * batch)))
        self._stream = Stream(self._window, workers, self._steps)

    def batch(self, step: int, workers: Sequence[int]) -> Tensor:
        """Sample numbers drawn by `workers` at `step`, (w, b) int64."""
        return self._stream.at(step, workers)

    def _window(self, worker: int, window: int) -> Tensor:
        """(steps, b): the part of the worker's stream that this window covers."""
        indices, length = self._indices[worker], self._steps * self._size
        first_pass, skipped = divmod(window * length, len(indices))
        passes = -(-(skipped + length) // len(indices))
        drawn = indices[self._orders(worker, first_pass, passes)].reshape(-1)[skipped : skipped + length]
        return torch.from_numpy(drawn.reshape(self._steps, self._size))

    def _orders(self, worker: int, first: int, passes: int) -> NDArray[np.int64]:
        """(passes, n_i): the random orders of passes `first`, `first` + 1, ...: the ranks of 64-bit random keys."""
        count = len(self._indices[worker])
        blocks = -(-count // 4)
        keys = philox(self._seed, worker, first * blocks).random_raw((passes, 4 * blocks))
        return np.argsort(keys[:, :count], axis=1)
