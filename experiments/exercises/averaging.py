"""The average of all, and methods that take it rarely: ring all-reduce, local SGD, DiLoCo."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from commeff import methods
from commeff.cluster import Cluster
from commeff.cluster.collectives import one_ring
from commeff.cluster.groups import Groups
from commeff.experiments.exercises.assignment import Array, Assignment, Law, Solution
from commeff.experiments.exercises.paths import Gradient, mean, path, rows, sgd

Exchange = Callable[[list[Array]], list[Array]]


def _around(n: int, chunk: int, asked: str) -> Callable[[Solution], dict[str, Any]]:
    """A ring of n workers with n chunks each: `asked` is the rows that they end with, the rounds, or the numbers."""

    def measure(solution: Solution) -> dict[str, Any]:
        sent = list[list[int]]()

        def exchange(messages: list[Array]) -> list[Array]:
            if len(messages) != n:
                raise ValueError(f"exchange takes {n} messages, one of each worker, got {len(messages)}")
            sent.append([np.size(message) for message in messages])
            return [np.array(messages[i - 1], dtype=float) for i in range(n)]

        result = solution(np.sin(1.0 + np.arange(n * n * chunk)).reshape(n, n * chunk), exchange)
        most = int(np.sum(sent, axis=0).max()) if sent else 0
        return {f"{asked}, {n} workers": {"rows": result, "rounds": len(sent), "numbers": most}[asked]}

    return measure


def _priced(x: Array, exchange: Exchange) -> Array:
    """The mean, by the messages that the cost model has."""
    moves = one_ring(Groups.first(Cluster.named("h100_400g", gpus=8), len(x)))
    for _ in range(int(moves.rounds)):
        exchange([np.zeros(round(float(moves.bytes / moves.rounds) * x.shape[1]))] * len(x))
    return mean(x)


def _catalogue_diloco(
    x: Array, gradient: Gradient, lr: float, period: int, outer_lr: float, momentum: float, steps: int
) -> Array:
    outer = partial(torch.optim.SGD, lr=outer_lr, momentum=momentum, nesterov=momentum > 0)
    return rows(methods.diloco(partial(torch.optim.Adam, lr=lr), period, outer), x, steps)


ASSIGNMENTS = (
    Assignment(
        "ring_all_reduce",
        _priced,
        (
            Law("every worker ends with the mean of all rows", _around(4, 3, "rows")),
            Law("the same with 5 workers", _around(5, 2, "rows")),
            Law("it takes 2 (n - 1) rounds", _around(5, 2, "rounds")),
            Law("every worker sends 2 (n - 1)/n d numbers", _around(5, 2, "numbers")),
        ),
    ),
    Assignment(
        "local_sgd",
        lambda x, gradient, lr, period, steps: rows(methods.local_sgd(sgd(lr), period), x, steps),
        (
            Law("with period 1 it is parallel SGD", path(0.1, 1)),
            Law("with period 3 it is `methods.local_sgd`", path(0.1, 3)),
            Law("the same with 5 workers and period 2", path(0.05, 2, n=5)),
        ),
    ),
    Assignment(
        "diloco",
        _catalogue_diloco,
        (
            Law("with outer rate 1 and no momentum it averages Adam's x every 3 steps", path(0.1, 3, 1.0, 0.0)),
            Law("with Nesterov's momentum it is `methods.diloco`", path(0.1, 2, 0.7, 0.9)),
            Law("the same with 5 workers and period 1", path(0.05, 1, 0.5, 0.8, n=5)),
        ),
    ),
)
