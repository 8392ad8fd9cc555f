"""The bandwidth that a method needs: computing time over all time, against Gbit/s between workers.

A `Pace` says how many seconds a step takes at a bandwidth: of a `job`, which is parameters, layers and seconds of
computing; or of a transformer on a cluster, which the planner prices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, inf, log
from typing import Any

import numpy as np
from scipy.optimize import brentq

from commeff.experiments.planning.question import Question
from commeff.planner import Policies, Policy, WorkerMethod, estimate
from commeff.planner.refusals import feasible
from commeff.planner.search.space import divisors, is_canonical

GIGABIT = 1e9 / 8
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)  # shares of computing time
SLOWEST, FASTEST = 1e-6, 1e9  # Gbit/s that are looked at
CLOSE = 1e-5  # relative, of a bandwidth


@dataclass(frozen=True)
class Pace:
    """The speed of steps.

    Attributes
    ----------
    seconds : of a step, from Gbit/s.
    computing : seconds of a step without communication.

    >>> exposed = Pace(lambda gigabits: 1 + 3 / gigabits, computing=1)  # 3 Gbit in a step, which nothing hides
    >>> exposed.utilisation(3), {level: round(x, 2) for level, x in exposed.needed((0.5, 0.75)).items()}
    (0.5, {0.5: 3.0, 0.75: 9.0})
    """

    seconds: Callable[[float], float]
    computing: float

    def utilisation(self, gigabits: float) -> float:
        """Computing time over all time."""
        return self.computing / self.seconds(gigabits)

    def needed(self, levels: Sequence[float] = LEVELS) -> dict[float, float]:
        """The Gbit/s that reach each share of computing time; 0 where any do, infinite where none do."""
        return {level: self._reaching(level) for level in levels}

    def _reaching(self, level: float) -> float:
        def above(log_gigabits: float) -> float:
            return self.utilisation(exp(log_gigabits)) - level

        if above(log(SLOWEST)) >= 0:
            return 0.0
        return exp(brentq(above, log(SLOWEST), log(FASTEST), xtol=CLOSE)) if above(log(FASTEST)) > 0 else inf


def planned(question: Question, policy: Policy, way: WorkerMethod) -> Pace:
    """A step of a way on a policy's layout, times the steps that the way needs, with the workers and the ZeRO stage
    that are best at the bandwidth of a NIC; infinitely long if nothing fits.

    Raises
    ------
    ValueError
        If the way needs two workers, and the layout has one data-parallel rank; and if not all stages recompute alike.
    """
    if policy.recompute_stages:
        raise ValueError(
            f"recompute_stages must be left out of bandwidths, got {policy.recompute_stages}: stages are equal"
        )
    if policy.data == 1 and not way.is_plain:
        raise ValueError(f"data must be at least 2 for {way.name}, got 1: each of its workers is a rank or more")
    candidates = [
        replace(policy, workers=workers, zero=zero, **way.fields)
        for workers in divisors(policy.data)
        if workers > 1 or way.is_plain
        for zero in range(4)
    ]
    policies = Policies.of(candidates)
    steps = np.array([way.steps_of(candidate.workers) for candidate in candidates])

    @cache
    def seconds(gigabits: float) -> float:
        cluster = question.cluster.with_inter(bandwidth=gigabits * GIGABIT)
        good = feasible(question.model, policies, cluster, question.global_batch) & is_canonical(policies)
        priced = estimate(question.model, policies, cluster, question.global_batch, question.constants)
        good &= priced.memory_bytes <= cluster.gpu.memory_bytes
        return float(np.where(good, priced.step_seconds * steps, inf).min())

    return Pace(seconds, seconds(FASTEST))


def rows(paces: Mapping[str, Pace]) -> list[dict[str, Any]]:
    """A line for each method and share of computing time; a single method is not named."""
    return [
        {**({"method": name} if len(paces) > 1 else {}), "utilisation": level, "gbit_per_s": float(f"{gigabits:.4g}")}
        for name, pace in paces.items()
        for level, gigabits in pace.needed().items()
    ]
