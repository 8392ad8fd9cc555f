"""Smaller messages: QSGD and its variance, error feedback, PowerSGD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from commeff import Communicator, methods
from commeff.compressors import QSGD, Compressor, Dense, Layout, TopK, WorkerRandom
from commeff.experiments.exercises.assignment import Array, Assignment, Law, Solution
from commeff.experiments.exercises.paths import RATES, path, rows, sgd
from commeff.laws.problem import start
from commeff.transforms import PowerSGD

Compress = Callable[[Array], Array]
LEVELS = 4
V = np.array([[0.6, -0.3, 0.1, 0.0, 0.05, -0.7, 0.2, -0.02], [2.0, 0.0, -1.0, 0.0, 0.5, 0.0, 0.0, 0.1]])
DRAWS, NOISE = 500, 0.03  # messages of two workers each, and more than what their mean is off


class _Rows:
    """A compressor as a function of rows, which keeps itself for the catalogue."""

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor

    def __call__(self, vectors: Array) -> Array:
        rows = torch.tensor(np.atleast_2d(vectors))
        return self.compressor.compress(rows, WorkerRandom(0, range(len(rows)))).decode().numpy()


def _quantised(v: Array, levels: int, random: np.random.Generator) -> Array:
    rows = torch.tensor(v)
    return QSGD(levels).compress(rows, WorkerRandom(int(random.integers(1 << 30)), range(len(v)))).decode().numpy()


def _drawn(asked: str, statistic: Callable[[Array, Array], Any]) -> Callable[[Solution], dict[str, Any]]:
    """A statistic of many messages of one vector, two rows at a time."""

    def measure(solution: Solution) -> dict[str, Any]:
        random, v = np.random.default_rng(0), V[0]
        messages = [solution(np.stack([v, v]), LEVELS, random) for _ in range(DRAWS)]
        return {asked: None if messages[0] is None else statistic(np.stack(messages), v)}

    return measure


def _zero(solution: Solution) -> dict[str, Any]:
    return {"a message of zeros": solution(np.zeros((1, 8)), LEVELS, np.random.default_rng(0))}


def _from_grid(messages: Array, v: Array) -> float:
    steps = messages * LEVELS / np.linalg.norm(v)
    return float(np.abs(steps - np.round(steps)).max())


def _errors(messages: Array, v: Array) -> list[float]:
    return [float(((of - v) ** 2).sum(-1).mean()) for of in (messages, messages.mean(1))]


def _summed_error(messages: Array, v: Array) -> float:
    return float((((messages - v) @ np.sign(v)) ** 2).mean())


def _measured_variance(v: Array, levels: int) -> Array:
    messages = _quantised(np.repeat(v, 20 * DRAWS, axis=0), levels, np.random.default_rng(0))
    return ((messages.reshape(len(v), -1, v.shape[1]) - v[:, None]) ** 2).sum(2).mean(1)


def _asked_variance(solution: Solution) -> dict[str, Any]:
    return {f"of two vectors, {levels} levels": solution(V.copy(), levels) for levels in (1, 4)}


def _right(n: int, shape: tuple[int, int], rank: int) -> Array:
    """The Q with which the catalogue's PowerSGD begins."""
    strategy, layout = methods.power_sgd(sgd(0.1), rank), Layout.of([("matrix", shape)])
    strategy.start(start(n, layout.d), layout, Communicator(workers=n, seed=3))
    assert isinstance(strategy.gradients, PowerSGD)
    return strategy.gradients.right["matrix"].numpy().copy()


def _power_path(n: int, shape: tuple[int, int], rank: int) -> Callable[[Solution], Any]:
    return path(_right(n, shape, rank), 0.1, n=n, shape=shape)


QSGD_LAWS = (
    Law("a zero vector gives zeros", _zero),
    Law("every entry is a multiple of |v|/s", _drawn("off by", _from_grid)),
    Law("it is unbiased: E C(v) = v", _drawn("the mean", lambda c, v: c.mean((0, 1))), NOISE),
    Law("E|C(v) - v|^2 is that of `QSGD`, half of it for the mean of two rows", _drawn("both", _errors), NOISE / 2),
    Law("each coordinate has a coin of its own", _drawn("the square of the summed error", _summed_error), NOISE / 2),
)
ASSIGNMENTS = (
    Assignment("qsgd", _quantised, QSGD_LAWS),
    Assignment(
        "variance",
        _measured_variance,
        (Law("`variance` is E|C(v) - v|^2, as measured on 10,000 messages", _asked_variance, NOISE / 2),),
        "qsgd",
    ),
    Assignment(
        "ef_sgd",
        lambda x, gradient, compress, lr, steps: rows(methods.mem_sgd(sgd(lr), compress.compressor), x, steps),
        (
            Law("without compression it is parallel SGD", path(_Rows(Dense()), RATES)),
            Law("with the 2 largest of 12 it is `methods.mem_sgd`", path(_Rows(TopK(k=2)), np.full(6, 0.1))),
            Law("the same at rates that fall, with 5 workers", path(_Rows(TopK(k=2)), RATES, n=5)),
        ),
    ),
    Assignment(
        "power_sgd",
        lambda x, gradient, right, lr, steps: rows(methods.power_sgd(sgd(lr), right.shape[1]), x, steps),
        (
            Law("with rank 2 it is `methods.power_sgd`", _power_path(4, (4, 6), 2)),
            Law("the same with rank 1 and 5 workers", _power_path(5, (4, 3), 1)),
        ),
    ),
)
