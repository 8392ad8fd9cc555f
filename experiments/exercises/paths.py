"""The problem on which methods are tried, that of `commeff.laws`, as students see it: numpy arrays, a row a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch

from commeff.compressors import Layout
from commeff.core.factories import scheduled
from commeff.core.local import OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.experiments.exercises.assignment import Array, Solution
from commeff.laws.problem import LAYOUT, STEPS, WORKERS, run, slope, start

Gradient = Callable[[Array, int], Array]
RATES = np.array([0.1, 0.1, 0.08, 0.04, 0.04, 0.02])  # of a schedule, one for each step


def path(*arguments: Any, n: int = WORKERS, shape: tuple[int, ...] = (LAYOUT.d,)) -> Callable[[Solution], Any]:
    """Where a method goes: solution(x, gradient, *arguments, steps) for one step, for two, and so on."""

    def gradient(x: Array, k: int) -> Array:
        if np.shape(x) != (n, *shape):
            raise ValueError(f"gradient(x, k) takes all workers' rows, of shape {(n, *shape)}, got {np.shape(x)}")
        rows = torch.tensor(np.asarray(x, dtype=float)).flatten(1)
        return slope(rows, k, range(n)).view(n, *shape).numpy()

    def measure(solution: Solution) -> Mapping[str, Any]:
        starts = {k: start(n, prod(shape)).view(n, *shape).numpy() for k in range(1, STEPS + 1)}
        return {f"x after step k = {k - 1}": solution(x, gradient, *deepcopy(arguments), k) for k, x in starts.items()}

    return measure


def rows(strategy: Strategy, x: Array, steps: int) -> Array:
    """The rows of a method of the catalogue after so many steps."""
    shape = x.shape[1:]
    layout = LAYOUT if len(shape) == 1 else Layout.of([("matrix", shape)])
    return run(strategy, steps, len(x), layout=layout)[0][-1].numpy().reshape(x.shape)


def sgd(lr: float | Array) -> OptimizerFactory:
    """SGD at a rate, or at one for each step."""
    if isinstance(lr, np.ndarray):
        factors = [*(lr / lr[0]).tolist(), 0.0]
        falling = partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda k: factors[min(k, len(lr))])
        return scheduled(partial(torch.optim.SGD, lr=float(lr[0])), falling)
    return partial(torch.optim.SGD, lr=lr)


def mean(x: Array) -> Array:
    """The workers' mean at every worker."""
    return np.broadcast_to(x.mean(0), x.shape)
