"""Laws on a topology over time: every step has a mixing matrix, the same on every worker, and in the end all agree."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from commeff.topologies.laws.samples import TopologyCase, require
from commeff.topologies.matrix import MixingMatrix

STEPS = 12
AGREED = 1e-3  # the share of a disagreement that counts as none


def gives_mixing_matrices(case: TopologyCase) -> None:
    """Every step has a mixing matrix over all n workers."""
    topology = case.build()
    size = topology.n if case.n is None else case.n
    require(topology.n == size, f"{case.name}: n must be {size}, got {topology.n}: make it over as many workers")
    for step in range(STEPS):
        try:
            matrix: object = topology.at(step)
        except ValueError as error:
            raise AssertionError(f"{case.name}: at({step}) has no mixing matrix: {error}") from error
        require(
            isinstance(matrix, MixingMatrix),
            f"{case.name}: at({step}) gives a {type(matrix).__name__}: return MixingMatrix(weights)",
        )
        n = topology.at(step).n
        require(n == size, f"{case.name}: at({step}) mixes {n} workers: make the weights ({size}, {size})")


def keeps_agreement(case: TopologyCase) -> None:
    """The rows sum to 1, so that workers who agree stay where they are."""
    topology = case.build()
    for step in range(STEPS):
        matrix = topology.at(step)
        sums = matrix.dense().sum(1)
        worst = int(np.abs(sums - 1).argmax())
        require(
            matrix.row_stochastic,
            f"{case.name}: row {worst} of step {step} sums to {sums[worst]:.6g}, not 1, so equal workers would part: "
            "divide each row by its sum (W[i, j] weighs what i receives from j)",
        )


def is_a_pure_function_of_the_step(case: TopologyCase) -> None:
    """A step gives the same matrix again: in another order, of a fresh object, in another process."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - watched, not used
    topology = case.build()
    first = [topology.at(step).dense() for step in range(STEPS)]
    touched = random.getstate() != states[0] or str(np.random.get_state()) != str(states[1])  # noqa: NPY002
    advice = "draw from np.random.default_rng((seed, step))"
    require(
        not touched,
        f"{case.name}: it draws from a global generator, which is another in every process: {advice}",
    )
    for step in reversed(range(STEPS)):
        require(
            np.array_equal(topology.at(step).dense(), first[step]),
            f"{case.name}: at({step}) gives another matrix when it is asked again, so workers would not agree whom to "
            f"talk to: make it a function of the step alone; {advice}",
        )
    fresh = case.build()
    for step in reversed(range(STEPS)):
        require(
            np.array_equal(fresh.at(step).dense(), first[step]),
            f"{case.name}: at({step}) of a second object is another matrix, as it would be in another process: keep no "
            f"count of calls; {advice}",
        )


def has_an_honest_period(case: TopologyCase) -> None:
    """After `period` steps the matrices repeat."""
    topology = case.build()
    period = topology.period
    require(
        period is None or (isinstance(period, int) and period >= 1),
        f"{case.name}: period is {period!r}: 1 for a fixed graph, a whole number of steps, or None if it never repeats",
    )
    for step in range(STEPS if period else 0):
        require(
            np.array_equal(topology.at(step).dense(), topology.at(step + (period or 0)).dense()),
            f"{case.name}: steps {step} and {step} + {period} differ, but period = {period}: say the true one, or None",
        )


def agrees_in_the_end(case: TopologyCase) -> None:
    """Mixing makes all workers equal: they are connected over time, and nothing only goes round."""
    topology = case.build()
    n, product = topology.n, np.eye(topology.n)
    if topology.period is None:
        steps = 0
        while steps < 64 * n and _disagreement(product) > AGREED:
            product, steps = topology.at(steps).dense() @ product, steps + 1
    else:
        steps = topology.period
        for step in range(steps):
            product = topology.at(step).dense() @ product
        while steps < 2**16 * n * n and _disagreement(product) > AGREED:
            product, steps = product @ product, 2 * steps
    rest = _disagreement(product)
    if rest <= AGREED:
        return
    received = sum(abs(topology.at(step).dense()) for step in range(min(topology.period or 64 * n, 64 * n)))
    count, group = connected_components(csr_array(received), directed=True, connection="strong")
    groups = [np.flatnonzero(group == g).tolist() for g in range(count)]
    reason = (
        f"the workers {groups[0]} and {groups[1]} do not all reach each other, directly or not; connect them"
        if count > 1
        else "weights go round and never mix; let every worker keep some of its own, as `lazy` does"
    )
    raise AssertionError(f"{case.name}: after {steps} steps {rest:.2g} of a disagreement is left: {reason}")


def _disagreement(product: NDArray[np.float64]) -> float:
    """How much of the disagreement between workers a product of mixing matrices leaves."""
    return float(np.linalg.norm(product - product.mean(0), 2))
