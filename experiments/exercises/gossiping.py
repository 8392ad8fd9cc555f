"""Methods that talk to few: gossip, and D2."""

from __future__ import annotations

import numpy as np

from commeff import methods
from commeff.experiments.exercises.assignment import Assignment, Law
from commeff.experiments.exercises.paths import RATES, path, rows, sgd
from commeff.topologies import exponential, from_matrices, lazy, ring, star

ASSIGNMENTS = (
    Assignment(
        "gossip",
        lambda x, gradient, w, lr, steps: rows(methods.dsgd(sgd(lr), from_matrices([w])), x, steps),
        (
            Law("with every weight 1/n it is parallel SGD", path(np.full((4, 4), 0.25), 0.1)),
            Law("on a star, whose weights differ, it is `methods.dsgd`", path(star(4).at(0).dense(), 0.1)),
            Law("the same on a directed graph of 5 workers", path(exponential(5).at(0).dense(), 0.05, n=5)),
        ),
    ),
    Assignment(
        "d2",
        lambda x, gradient, w, lr, steps: rows(methods.d2(sgd(lr), from_matrices([w])), x, steps),
        (
            Law("with every weight 1/n it is parallel SGD", path(np.full((4, 4), 0.25), RATES)),
            Law("at one rate it is `methods.d2`", path(lazy(ring(4)).at(0).dense(), np.full(6, 0.1))),
            Law("the same at rates that fall, with 5 workers", path(lazy(ring(5)).at(0).dense(), RATES, n=5)),
        ),
    ),
)
