"""The average of all, and methods that take it rarely: ring all-reduce, local SGD, DiLoCo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
Due = Callable[[int, int], bool]


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


def _ring(
    x: Array,
    exchange: Exchange,
    begin: int = 1,
    into: int = 1,
    adds: tuple[bool, bool] = (True, False),
    rounds: Callable[[int], tuple[int, int]] = lambda n: (n - 1, n - 1),
    total: bool = False,
    sends: str = "chunks",
) -> Array:
    n, d = x.shape
    if sends == "nothing":
        return mean(x)
    if sends == "vectors":
        sums, passed = x.copy(), list(x)
        for _ in range(n - 1):
            passed = exchange(passed)
            sums += np.stack(passed)
        return sums / n
    chunks = x.copy().reshape(n, n, d // n)
    for half, count in enumerate(rounds(n)):
        for t in range(count):
            sent = [(i - t + half * begin) % n for i in range(n)]
            received = exchange([chunks[i, c] for i, c in enumerate(sent)])
            for i in range(n):
                chunks[i, sent[i - into]] = received[i] + adds[half] * chunks[i, sent[i - into]]
    return chunks.reshape(n, d) / (1 if total else n)


def _local_sgd(
    x: Array,
    gradient: Gradient,
    lr: float,
    period: int,
    steps: int,
    due: Due = lambda k, period: (k + 1) % period == 0,
    how: str = "after",
) -> Array:
    for k in range(steps):
        now = due(k, period)
        x = mean(x) if now and how == "before" else x
        if not (now and how == "instead"):
            g = gradient(x, k)
            x = x - lr * (mean(g) if now and how == "gradients" else g)
        if now and how in ("after", "instead", "sum"):
            x = mean(x) * (len(x) if how == "sum" else 1)
    return x


def _diloco(
    x: Array,
    gradient: Gradient,
    lr: float,
    period: int,
    outer_lr: float,
    momentum: float,
    steps: int,
    due: Due = lambda k, period: (k + 1) % period == 0,
    outer: str = "nesterov",
    biased: bool = False,
    reset: bool = False,
    stays: bool = False,
    moved: Callable[[Array, Array], Array] = lambda a, x: a - mean(x),
    anchored: bool = True,
) -> Array:
    anchor, velocity, m, v, t = x, 0 * x, 0 * x, 0 * x, 0
    for k in range(steps):
        g, t = gradient(x, k), t + 1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        first, second = (m, v) if biased else (m / (1 - 0.9**t), v / (1 - 0.999**t))
        x = x - lr * first / (np.sqrt(second) + 1e-8)
        if due(k, period):
            change = moved(anchor, x)
            velocity = momentum * velocity + (1 - momentum if outer == "average" else 1) * change
            after = anchor - outer_lr * (change + momentum * velocity if outer == "nesterov" else velocity)
            x, anchor = x if stays else after, after if anchored else anchor
            m, v, t = (0 * m, 0 * v, 0) if reset else (m, v, t)
    return x


AT_ZERO = "it averages at step 0: k counts from 0, so a period ends with the step where (k + 1) % period == 0"
RING: Mapping[str, Any] = {
    "nothing is sent: a worker sees of others what `exchange` gives it": {"sends": "nothing"},
    "the second half begins with chunk i, or the first does not add: there chunk i + 1 is complete": {"begin": 0},
    "the chunk index of what arrives is that of what was sent: it is the left neighbour's": {"into": 0},
    "the second half adds what arrives: there a complete chunk replaces another": {"adds": (True, True)},
    "it ends with the sum: 1/n is missing": {"total": True},
    "it ends after n - 1 rounds: each chunk is complete at one worker, and goes round": {
        "rounds": lambda n: (n - 1, 0)
    },
    "it takes n rounds and not 2 (n - 1): the second half takes n - 1 too": {"rounds": lambda n: (n - 1, 1)},
    "each half takes n rounds: after n - 1 every chunk has been everywhere": {"rounds": lambda n: (n, n)},
    "whole vectors go round, (n - 1) d numbers: a round sends one chunk of d/n": {"sends": "vectors"},
}
LOCAL_SGD: Mapping[str, Any] = {
    AT_ZERO: {"due": lambda k, period: k % period == 0},
    "it takes no gradient step where k % period == 0, as a lecture prints it: step always, then average": {
        "due": lambda k, period: k % period == 0,
        "how": "instead",
    },
    "it takes no gradient step where it averages: step always, then average": {"how": "instead"},
    "it averages before the last gradient step of a period: first step, then average": {"how": "before"},
    "it averages at the begin of the next period, and not at the end of this": {
        "due": lambda k, period: k % period == 0,
        "how": "before",
    },
    "it averages after the step of k = period, one late: k counts from 0": {
        "due": lambda k, period: k > 0 and k % period == 0
    },
    "it takes the sum: 1/n is missing": {"how": "sum"},
    "it averages gradients, and x stays apart: average x": {"how": "gradients"},
    "it averages at every step, which is parallel SGD": {"due": lambda k, period: True},
}
DILOCO: Mapping[str, Any] = {
    "the outer momentum is heavy ball: Nesterov's step is D + momentum u, with the new u": {"outer": "heavy ball"},
    "the outer momentum is a running average: u <- momentum u + D, without 1 - momentum": {"outer": "average"},
    "Adam is biased: m is divided by 1 - 0.9^t and v by 1 - 0.999^t": {"biased": True},
    "Adam begins anew in every period: m, v and t go on": {"reset": True},
    AT_ZERO: {"due": lambda k, period: k % period == 0},
    "D is a sum over workers: 1/n is missing": {"moved": lambda a, x: len(x) * (a - mean(x))},
    "D has the wrong sign: it is a - mean x, and a descends along it": {"moved": lambda a, x: mean(x) - a},
    "the anchor never moves: a is what the last outer step gave": {"anchored": False},
    "workers go on from their own x: after an outer step every x_i is a": {"stays": True},
}


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
        _ring,
        RING,
    ),
    Assignment(
        "local_sgd",
        lambda x, gradient, lr, period, steps: rows(methods.local_sgd(sgd(lr), period), x, steps),
        (
            Law("with period 1 it is parallel SGD", path(0.1, 1)),
            Law("with period 3 it is `methods.local_sgd`", path(0.1, 3)),
            Law("the same with 5 workers and period 2", path(0.05, 2, n=5)),
        ),
        _local_sgd,
        LOCAL_SGD,
    ),
    Assignment(
        "diloco",
        _catalogue_diloco,
        (
            Law("with outer rate 1 and no momentum it averages Adam's x every 3 steps", path(0.1, 3, 1.0, 0.0)),
            Law("with Nesterov's momentum it is `methods.diloco`", path(0.1, 2, 0.7, 0.9)),
            Law("the same with 5 workers and period 1", path(0.05, 1, 0.5, 0.8, n=5)),
        ),
        _diloco,
        DILOCO,
    ),
)
