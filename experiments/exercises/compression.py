"""Smaller messages: QSGD and its variance, error feedback, PowerSGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from commeff import Communicator, methods
from commeff.compressors import QSGD, Compressor, Dense, Layout, TopK, WorkerRandom
from commeff.experiments.exercises.assignment import Array, Assignment, Law, Solution
from commeff.experiments.exercises.paths import RATES, Gradient, mean, path, rows, sgd
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


def _l2(v: Array) -> Array:
    return np.linalg.norm(v, axis=1, keepdims=True)


def _qsgd(
    v: Array,
    levels: int,
    random: np.random.Generator,
    norm: Callable[[Array], Array] = _l2,
    rounding: Callable[[Array, Array], Array] = lambda a, u: np.floor(a + u),
    draws: Callable[[Array], tuple[int, ...]] = np.shape,
    signed: bool = True,
    safe: bool = True,
) -> Array:
    a, u = levels * np.abs(v) / norm(v), np.broadcast_to(random.random(draws(v)), v.shape)
    a = np.nan_to_num(a) if safe else a
    return norm(v) * (np.sign(v) if signed else 1) * rounding(a, u) / levels


def _variance(
    v: Array,
    levels: int,
    of: Callable[[Array], Array] = lambda p: p * (1 - p),
    reduce: Callable[..., Array] = np.sum,
    unit: Callable[[Array, int], Array] = lambda m, s: m**2 / s**2,
    bound: bool = False,
) -> Array:
    m = _l2(v)
    a, d = levels * np.abs(v) / m, v.shape[1]
    if bound:
        return min(d / levels**2, np.sqrt(d) / levels) * m[:, 0] ** 2
    return reduce(unit(m, levels) * of(a - np.floor(a)), axis=1)


def _measured_variance(v: Array, levels: int) -> Array:
    messages = _quantised(np.repeat(v, 20 * DRAWS, axis=0), levels, np.random.default_rng(0))
    return ((messages.reshape(len(v), -1, v.shape[1]) - v[:, None]) ** 2).sum(2).mean(1)


def _asked_variance(solution: Solution) -> dict[str, Any]:
    return {f"of two vectors, {levels} levels": solution(V.copy(), levels) for levels in (1, 4)}


def _ef_sgd(
    x: Array,
    gradient: Gradient,
    compress: Compress,
    lr: Array,
    steps: int,
    memory: str = "rest",
    units: str = "lr g",
    received: str = "mean",
) -> Array:
    e = 0 * x
    for k in range(steps):
        g = gradient(x, k)
        q = (g if units == "g" else lr[k] * g) + e
        c = compress(mean(q) if received == "compressed mean" else q)
        x = x - (1 if units == "lr g" else lr[k]) * {"own": c, "sum": len(x) * mean(c)}.get(received, mean(c))
        e = {"rest": q - c, "sent": c, "none": 0 * x, "new": lr[k] * g - c}[memory]
    return x


def _right(n: int, shape: tuple[int, int], rank: int) -> Array:
    """The Q with which the catalogue's PowerSGD begins."""
    strategy, layout = methods.power_sgd(sgd(0.1), rank), Layout.of([("matrix", shape)])
    strategy.start(start(n, layout.d), layout, Communicator(workers=n, seed=3))
    assert isinstance(strategy.gradients, PowerSGD)
    return strategy.gradients.right["matrix"].numpy().copy()


def _power_path(n: int, shape: tuple[int, int], rank: int) -> Callable[[Solution], Any]:
    return path(_right(n, shape, rank), 0.1, n=n, shape=shape)


def _power_sgd(
    x: Array,
    gradient: Gradient,
    right: Array,
    lr: float,
    steps: int,
    warm: bool = True,
    memory: str = "rest",
    basis: str = "of the mean",
    total: bool = False,
) -> Array:
    e, q = 0 * x, right
    for k in range(steps):
        g = gradient(x, k)
        m = g + e
        left = m @ q
        p = {
            "of the mean": np.linalg.qr(left.mean(0))[0],
            "none": left.mean(0),
            "of each": np.stack([np.linalg.qr(one)[0] for one in left]).mean(0),
        }[basis]
        new = m.transpose(0, 2, 1).mean(0) @ p * (len(x) if total else 1)
        out = p @ new.T
        e = {"rest": m - out, "none": 0 * x, "new": g - out}[memory]
        x, q = x - lr * out, new if warm else right
    return x


QSGD_LAWS = (
    Law("a zero vector gives zeros", _zero),
    Law("every entry is a multiple of |v|/s", _drawn("off by", _from_grid)),
    Law("it is unbiased: E C(v) = v", _drawn("the mean", lambda c, v: c.mean((0, 1))), NOISE),
    Law("E|C(v) - v|^2 is that of `QSGD`, half of it for the mean of two rows", _drawn("both", _errors), NOISE / 2),
    Law("each coordinate has a coin of its own", _drawn("the square of the summed error", _summed_error), NOISE / 2),
)
QSGD_ERRORS: Mapping[str, Any] = {
    "it rounds to the nearest level: round up with the probability of the fraction": {
        "rounding": lambda a, u: np.floor(a + 0.5)
    },
    "it rounds down always: round up with the probability of the fraction": {"rounding": lambda a, u: np.floor(a)},
    "the probabilities are exchanged: up with a - floor(a), down with the rest": {
        "rounding": lambda a, u: np.floor(a) + (u >= a - np.floor(a)) * (a > np.floor(a))
    },
    "the norm is the largest |v_i|: it is the root of the sum of squares": {
        "norm": lambda v: np.abs(v).max(1, keepdims=True)
    },
    "the norm is the sum of |v_i|: it is the root of the sum of squares": {
        "norm": lambda v: np.abs(v).sum(1, keepdims=True)
    },
    "the norm is that of all rows together: each row has its own": {"norm": np.linalg.norm},
    "one random number serves all rows: their errors then do not average out": {"draws": lambda v: ()},
    "one random number serves a row: each coordinate has its own": {"draws": lambda v: (len(v), 1)},
    "the sign is lost: it travels beside the level": {"signed": False},
    "a zero vector is divided by its norm, 0: its message is 0": {"safe": False},
}
VARIANCE: Mapping[str, Any] = {
    "this is the bound omega |v|^2: the exact value is (|v|/s)^2 sum_i p_i (1 - p_i)": {"bound": True},
    "|v|^2 is missing: a step of the grid is |v|/s": {"unit": lambda m, s: 1 / s**2},
    "1/s^2 is missing: a step of the grid is |v|/s": {"unit": lambda m, s: m**2},
    "|v|/s is not squared: it is the length of a step of the grid": {"unit": lambda m, s: m / s},
    "this is sum p_i: a coin of probability p has the variance p (1 - p)": {"of": lambda p: p},
    "it is the mean over coordinates: |.|^2 is their sum": {"reduce": np.mean},
}
EF_SGD: Mapping[str, Any] = {
    "the error forgets the learning rate: q_i = lr[k] g_i + e_i, and x moves by the mean of C(q_i)": {"units": "g"},
    "the learning rate acts twice: it is in q_i, and x moves by the mean of C(q_i)": {"units": "twice"},
    "it stores the compressed part: e_i is what was not sent, q_i - C(q_i)": {"memory": "sent"},
    "it has no memory: e_i = q_i - C(q_i) is added to the next message": {"memory": "none"},
    "it drops the error of before: e_i = q_i - C(q_i), and q_i holds the old e_i": {"memory": "new"},
    "x moves by the sum of C(q_i): 1/n is missing": {"received": "sum"},
    "each worker moves by its own C(q_i): all move by the mean": {"received": "own"},
    "the mean is compressed: each worker compresses its own q_i": {"received": "compressed mean"},
}
POWER_SGD: Mapping[str, Any] = {
    "it does not start warm: the next step begins with this step's Q": {"warm": False},
    "there is no error: M_i = G_i + E_i, with E_i = M_i - P Q^T": {"memory": "none"},
    "it drops the error of before: E_i = M_i - P Q^T, and M_i holds the old E_i": {"memory": "new"},
    "P is not orthonormal: it is the Q of a QR decomposition of the mean of M_i Q": {"basis": "none"},
    "each worker orthonormalises its own M_i Q: average first": {"basis": "of each"},
    "Q is a sum: 1/n is missing": {"total": True},
}

ASSIGNMENTS = (
    Assignment("qsgd", _quantised, QSGD_LAWS, _qsgd, QSGD_ERRORS),
    Assignment(
        "variance",
        _measured_variance,
        (Law("`variance` is E|C(v) - v|^2, as measured on 10,000 messages", _asked_variance, NOISE / 2),),
        _variance,
        VARIANCE,
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
        _ef_sgd,
        EF_SGD,
    ),
    Assignment(
        "power_sgd",
        lambda x, gradient, right, lr, steps: rows(methods.power_sgd(sgd(lr), right.shape[1]), x, steps),
        (
            Law("with rank 2 it is `methods.power_sgd`", _power_path(4, (4, 6), 2)),
            Law("the same with rank 1 and 5 workers", _power_path(5, (4, 3), 1)),
        ),
        _power_sgd,
        POWER_SGD,
    ),
)
