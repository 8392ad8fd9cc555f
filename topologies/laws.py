"""What must hold of every topology, built in or the reader's own: `check(function)` raises AssertionError otherwise.

A law is a function of `Case`; its sentence says what was measured, and what to do.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from commeff.topologies.matrix import MixingMatrix
from commeff.topologies.static import ring
from commeff.topologies.topology import Topology

SIZES = (8, 5, 2, 1)  # numbers of workers; a topology may refuse some, but not all
STEPS = 12
AGREED = 1e-3  # the share of a disagreement that counts as none


@dataclass(frozen=True)
class Case:
    """A topology function with arguments: `build()` gives a fresh topology over n workers, or over as many as it likes
    where n is None.
    """

    name: str
    build: Callable[[], Topology]
    n: int | None


def cases(function: Callable[..., Topology]) -> list[Case]:
    """The function at several numbers of workers; what it refuses with a ValueError is left out, unless it is all."""
    found, refusals = list[Case](), list[str]()
    for case in _all_cases(function):
        try:
            topology = case.build()
        except ValueError as error:
            refusals.append(str(error))
            continue
        _require(isinstance(topology, Topology), f"{case.name} gives a {type(topology).__name__}: return a Topology")
        found.append(case)
    _require(bool(found), f"{function.__name__} refuses {', '.join(map(str, SIZES))} workers: {refusals[:1]}")
    return found


def _all_cases(function: Callable[..., Topology]) -> Iterator[Case]:
    hints, fixed, sized = get_type_hints(function), dict[str, Any](), list[str]()
    for name, parameter in inspect.signature(function).parameters.items():
        if name in ("n", "workers"):
            sized.append(name)
        elif name == "seed":
            fixed[name] = 3
        elif hints.get(name) is Topology:
            fixed[name] = ring
        elif parameter.default is parameter.empty:
            raise TypeError(
                f"{function.__name__} requires {name!r}, for which the laws know no value: give it a default"
            )
    for n in SIZES:
        arguments = {name: value(n) if value is ring else value for name, value in fixed.items()}
        shown = ", ".join(f"{name}={n}" for name in sized)
        build = partial(function, **arguments, **dict.fromkeys(sized, n))
        yield Case(f"{function.__name__}({shown})", build, n if sized else None)
        if not sized:
            return


def gives_mixing_matrices(case: Case) -> None:
    """Every step has a mixing matrix over all n workers."""
    topology = case.build()
    asked = topology.n if case.n is None else case.n
    _require(topology.n == asked, f"{case.name}: it is over n = {topology.n} workers; make it {asked}, as was asked")
    for step in range(STEPS):
        try:
            matrix: object = topology.at(step)
        except ValueError as error:
            raise AssertionError(f"{case.name}: at({step}) has no mixing matrix: {error}") from error
        _require(
            isinstance(matrix, MixingMatrix),
            f"{case.name}: at({step}) gives a {type(matrix).__name__}: return MixingMatrix(weights)",
        )
        n = topology.at(step).n
        _require(n == asked, f"{case.name}: at({step}) mixes {n} workers: make the weights ({asked}, {asked})")


def keeps_agreement(case: Case) -> None:
    """The rows sum to 1, and nobody's own weight is negative."""
    topology = case.build()
    for step in range(STEPS):
        dense = topology.at(step).dense()
        sums, own = dense.sum(1), dense.diagonal()
        worst, least = int(np.abs(sums - 1).argmax()), int(own.argmin())
        _require(
            topology.at(step).row_stochastic,
            f"{case.name}: row {worst} of step {step} sums to {sums[worst]:.6g}, not 1, so equal workers would part: "
            "divide each row by its sum (W[i, j] weighs what i receives from j)",
        )
        _require(
            own[least] >= 0,
            f"{case.name}: in step {step} worker {least} weighs its own vector {own[least]:.6g}, below 0: give less "
            "to the others",
        )


def is_a_pure_function_of_the_step(case: Case) -> None:
    """The same step gives the same matrix: asked again, in another order, of a fresh object, in another process."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - watched, not used
    topology = case.build()
    first = [topology.at(step).dense() for step in range(STEPS)]
    touched = random.getstate() != states[0] or str(np.random.get_state()) != str(states[1])  # noqa: NPY002
    advice = "draw from np.random.default_rng((seed, step))"
    _require(
        not touched,
        f"{case.name}: it draws from a global generator, which is another in every process: {advice}",
    )
    for step in reversed(range(STEPS)):
        _require(
            np.array_equal(topology.at(step).dense(), first[step]),
            f"{case.name}: at({step}) gives another matrix when it is asked again, so workers would not agree whom to "
            f"talk to: make it a function of the step alone; {advice}",
        )
    fresh = case.build()
    for step in reversed(range(STEPS)):
        _require(
            np.array_equal(fresh.at(step).dense(), first[step]),
            f"{case.name}: at({step}) of a second object is another matrix, as it would be in another process: keep no "
            f"count of calls; {advice}",
        )


def has_an_honest_period(case: Case) -> None:
    """After `period` steps the matrices repeat."""
    topology = case.build()
    period = topology.period
    _require(
        period is None or (isinstance(period, int) and period >= 1),
        f"{case.name}: period is {period!r}: 1 for a fixed graph, a whole number of steps, or None if it never repeats",
    )
    for step in range(STEPS if period else 0):
        _require(
            np.array_equal(topology.at(step).dense(), topology.at(step + (period or 0)).dense()),
            f"{case.name}: steps {step} and {step} + {period} differ, but period = {period}: say the true one, or None",
        )


def agrees_in_the_end(case: Case) -> None:
    """Mixing makes everybody equal: the workers are connected over time, and nothing only goes round."""
    topology = case.build()
    n, product = topology.n, np.eye(topology.n)
    if topology.period is None:
        steps = 64 * n
        for step in range(steps):
            product = topology.at(step).dense() @ product
    else:
        steps = topology.period
        for step in range(steps):
            product = topology.at(step).dense() @ product
        while steps < 2**16 * n * n and _disagreement(product) > AGREED:
            product, steps = product @ product, 2 * steps
    left = _disagreement(product)
    if left <= AGREED:
        return
    heard = sum(abs(topology.at(step).dense()) for step in range(min(topology.period or 64 * n, 64 * n)))
    count, group = connected_components(csr_array(heard), directed=True, connection="strong")
    groups = [np.flatnonzero(group == g).tolist() for g in range(count)]
    reason = (
        f"the workers {groups[0]} and {groups[1]} do not all hear each other, directly or not; connect them"
        if count > 1
        else "weights go round and never mix; let every worker keep some of its own, as `lazy` does"
    )
    raise AssertionError(f"{case.name}: after {steps} steps {left:.2g} of a disagreement is left: {reason}")


def _disagreement(product: NDArray[np.float64]) -> float:
    """How much of the disagreement between workers a product of mixing matrices leaves."""
    return float(np.linalg.norm(product - product.mean(0), 2))


LAWS: tuple[Callable[[Case], None], ...] = (
    gives_mixing_matrices,
    keeps_agreement,
    is_a_pure_function_of_the_step,
    has_an_honest_period,
    agrees_in_the_end,
)

# Laws that say nothing where another is broken.
BASES = {
    gives_mixing_matrices: LAWS[1:],
    keeps_agreement: (agrees_in_the_end,),
    is_a_pure_function_of_the_step: (has_an_honest_period, agrees_in_the_end),
}


def check(function: Callable[..., Topology]) -> None:
    """All laws at all sizes, one after the other.

    >>> check(ring)
    """
    for case in cases(function):
        for law in LAWS:
            law(case)


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise AssertionError(complaint)
