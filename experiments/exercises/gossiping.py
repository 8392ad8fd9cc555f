"""Methods that talk to few: gossip, and D2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from commeff import methods
from commeff.experiments.exercises.assignment import Array, Assignment, Law
from commeff.experiments.exercises.paths import RATES, Gradient, path, rows, sgd
from commeff.topologies import exponential, from_matrices, lazy, ring, star


def _gossip(
    x: Array,
    gradient: Gradient,
    w: Array,
    lr: float,
    steps: int,
    weights: Callable[[Array], Array] = lambda w: w,
    how: str = "adapt, then combine",
    late: int = 0,
) -> Array:
    w = weights(w)
    for k in range(steps):
        y = w @ x if how == "at the mix" else x
        g = gradient(y, k + late)
        x = {
            "adapt, then combine": w @ (x - lr * g),
            "adapt while combining": w @ x - lr * g,
            "at the mix": y - lr * g,
            "gradients": x - lr * w @ g,
        }[how]
    return x


def _d2(
    x: Array,
    gradient: Gradient,
    w: Array,
    lr: Array,
    steps: int,
    previous: str = "x",
    rate: int = -1,
    weights: tuple[float, float] = (1, 1),
    outside: bool = False,
    first: bool = True,
) -> Array:
    last, half, g = x, x, 0 * x
    for k in range(steps):
        old = {"x": last, "mixed again": w @ last, "not yet mixed": half}[previous]
        correction = weights[0] * (x - old) + weights[1] * lr[k + rate] * g if k else 0 * x
        g = gradient(x, k)
        half = x - lr[k] * g
        mixed = w @ half + correction if outside else w @ (half + correction)
        last, x = x, mixed if k or first else half
    return x


GOSSIP: Mapping[str, Any] = {
    "W is transposed: W[i, j] weighs what i receives from j, so the new rows are W @ h": {"weights": np.transpose},
    "the gradient step comes after the mix, another method (AWC): mix h = x - lr g": {"how": "adapt while combining"},
    "the gradient is taken where the mix has led: take it at x_i, then mix": {"how": "at the mix"},
    "gradients are mixed, and x is not: mix h = x - lr g": {"how": "gradients"},
    "a worker forgets itself: the diagonal of W weighs its own h": {"weights": lambda w: w * (1 - np.eye(len(w)))},
    "all are averaged with all: use the weights of W": {"weights": lambda w: np.full_like(w, 1 / len(w))},
    "neighbours count alike: use the numbers in W": {"weights": lambda w: (w > 0) / (w > 0).sum(1, keepdims=True)},
    "steps are counted from 1: the first gradient is gradient(x, 0)": {"late": 1},
}
D2: Mapping[str, Any] = {
    "the previous gradient has this step's rate: it has its own, lr[k - 1]": {"rate": 0},
    "the previous iterate is mixed once more: W acts once, on the sum of all": {"previous": "mixed again"},
    "what is remembered is not yet mixed, x - lr g: x^{k-1} is the iterate itself": {"previous": "not yet mixed"},
    "the correction is not mixed: W acts on the sum of all": {"outside": True},
    "the previous gradient is missing: add lr[k - 1] g^{k-1}": {"weights": (1, 0)},
    "the previous iterate is missing: 2 x^k - x^{k-1} stands where gossip has x^k": {"weights": (0, 1)},
    "it is gossip without a correction": {"weights": (0, 0)},
    "the first step is not mixed: x^1 = W (x^0 - lr[0] g^0)": {"first": False},
}

ASSIGNMENTS = (
    Assignment(
        "gossip",
        lambda x, gradient, w, lr, steps: rows(methods.dsgd(sgd(lr), from_matrices([w])), x, steps),
        (
            Law("with every weight 1/n it is parallel SGD", path(np.full((4, 4), 0.25), 0.1)),
            Law("on a star, whose weights differ, it is `methods.dsgd`", path(star(4).at(0).dense(), 0.1)),
            Law("the same on a directed graph of 5 workers", path(exponential(5).at(0).dense(), 0.05, n=5)),
        ),
        _gossip,
        GOSSIP,
    ),
    Assignment(
        "d2",
        lambda x, gradient, w, lr, steps: rows(methods.d2(sgd(lr), from_matrices([w])), x, steps),
        (
            Law("with every weight 1/n it is parallel SGD", path(np.full((4, 4), 0.25), RATES)),
            Law("at one rate it is `methods.d2`", path(lazy(ring(4)).at(0).dense(), np.full(6, 0.1))),
            Law("the same at rates that fall, with 5 workers", path(lazy(ring(5)).at(0).dense(), RATES, n=5)),
        ),
        _d2,
        D2,
    ),
)
