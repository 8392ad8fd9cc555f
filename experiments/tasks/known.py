"""Problems whose objective is known: a point x in place of a model, gradient noise in place of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from commeff.experiments.tasks.sampler import WINDOW, Stream, philox

AHEAD = 1 << 15  # numbers of a worker's noise that are kept, more only of a single step


class PointModel(nn.Module):
    """A bare x of this shape, zero at first. forward: `objective` of x as a vector (d,) and of a minibatch."""

    def __init__(self, objective: Callable[..., Tensor], *shape: int, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(*shape, dtype=dtype))
        self._objective = objective

    def forward(self, *batch: Tensor) -> Tensor:
        return self._objective(self.x.flatten(), *batch)


class Known:
    """What the tasks without samples share.

    A task sets `_tables`, each (n, ...), what of f_i a minibatch holds; the `_noise` beside them; and what makes its
    `_point`.
    """

    size = 0
    _tables: Sequence[Tensor]
    _noise: Noise
    _point: Callable[[], PointModel]

    def model(self) -> nn.Module:
        """The point x = 0."""
        return self._point()

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor, ...]:
        """The rows of the tables that are the workers', and xi at `step`, each with (w, 1) before its own shape."""
        rows = [rows_of(table, workers) for table in self._tables] + [self._noise.at(step, workers)]
        return tuple(row[:, None] for row in rows)

    def loss(self, model: Callable[..., Any], *batch: Tensor) -> Tensor:
        """F_i(x; xi) = f_i(x) + <xi, x>, a scalar."""
        value: Tensor = model(*batch).mean()
        return value

    def test(self, model: nn.Module) -> dict[str, float]:
        """Nothing: f is known."""
        return {}

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """Nothing: there is no BatchNorm."""
        return ()


class Noise:
    """Gradient noise scale N(0, I), one vector of d numbers a step for each of n workers.

    Parameters
    ----------
    seed, workers, dimension : its key, n and d.
    scale : the standard deviation of a number; 0 draws nothing.
    dtype : of the numbers, which are drawn in float64.

    >>> noise = Noise(seed=0, workers=3, dimension=2, scale=1.0)
    >>> bool((noise.at(5, [2, 0])[1] == noise.at(5, [0])).all()), noise.at(5, [2, 0]).shape
    (True, torch.Size([2, 2]))
    """

    def __init__(
        self, seed: int, workers: int, dimension: int, scale: float, dtype: torch.dtype = torch.float64
    ) -> None:
        self._seed, self._scale = seed, scale
        self._zero = torch.zeros((), dtype=dtype).expand(workers, dimension)
        self._ahead = min(WINDOW, 1 << max(0, (AHEAD // dimension).bit_length() - 1))  # steps drawn at a time
        self._next: dict[int, tuple[int, np.random.Generator]] = {}  # what each worker's generator draws next
        self._stream = Stream(self._drawn, workers, self._ahead) if scale else None

    def at(self, step: int, workers: Sequence[int]) -> Tensor:
        """The noise of `workers` at `step`, (w, d)."""
        return self._zero[: len(workers)] if self._stream is None else self._stream.at(step, workers)

    def _drawn(self, worker: int, part: int) -> Tensor:
        """A part of a window: its generator goes on from the part before, or begins anew and passes over it."""
        window, passed = divmod(part, WINDOW // self._ahead)
        following, normal = self._next.get(worker, (-1, None))
        shape = self._ahead, self._zero.shape[1]
        if normal is None or not passed or part != following:
            normal = np.random.Generator(philox(self._seed, worker, 0, stream=window + 1))
            for _ in range(passed):
                normal.standard_normal(shape)
        self._next[worker] = part + 1, normal
        return torch.from_numpy(self._scale * normal.standard_normal(shape)).to(self._zero.dtype)


def rows_of(table: Tensor, workers: Sequence[int]) -> Tensor:
    """The rows of `workers`, without a copy where they lie together.

    >>> rows_of(torch.arange(4), range(1, 3)), rows_of(torch.arange(4), [3, 1])
    (tensor([1, 2]), tensor([3, 1]))
    """
    first = workers[0] if workers else 0
    together = list(workers) == list(range(first, first + len(workers)))
    return table[first : first + len(workers)] if together else table[list(workers)]
