"""The plans of a search in an order that holds where predictions err: ties, and which of them lose least at worst."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commeff.experiments.planning.explain import better
from commeff.experiments.planning.question import Question
from commeff.planner import Plan, Policies, estimate
from commeff.planner.constants import HELD_OUT, TIE

CANDIDATES = 100  # the fastest plans, among which ties are looked for
UNFELT = ("GPU memory", "bandwidth to the host")  # by the steps of a search, which offloads nothing
MORE = 1.1  # times the memory: the margin for fragments that `fragmentation=0.1` counts


class RankedPlan(NamedTuple):
    """A plan among others.

    Attributes
    ----------
    plan : what was found.
    tied : whether it is predicted to be at most `TIE` times as slow as the fastest.
    lost : share of its seconds beyond those of the fastest tied plan, where that is most: on the machine as described,
        or with one of `explain.better` as much worse as a step is slower than predicted at the end of `HELD_OUT`.
    roomy : whether there is room for `MORE` times the memory that it needs.
    """

    plan: Plan
    tied: bool
    lost: float
    roomy: bool


def ranked(question: Question, plans: list[Plan]) -> list[RankedPlan]:
    """Tied plans first, those with room before those without, and of these the ones that lose least; then the others,
    the fastest first. What slows all of them alike changes nothing. Bounds have no uncertainty and no ties.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    plans : of a search, the fastest first.
    """
    worse, tie = ([], 1.0) if question.is_bound else (better(question, 1 / HELD_OUT[1]), TIE)
    felt = (machine for name, machine in worse if name not in UNFELT)
    seconds = np.array([[plan.step_seconds for plan in plans], *(_seconds(machine, plans) for machine in felt)])
    tied = seconds[0] <= tie * seconds[0].min()
    lost = (seconds / seconds[:, tied].min(axis=1, keepdims=True)).max(axis=0) - 1
    roomy = [MORE * plan.prediction.memory_bytes <= question.cluster.gpu.memory_bytes for plan in plans]
    found = map(RankedPlan, plans, tied.tolist(), lost.tolist(), roomy)
    return sorted(found, key=lambda one: (0, not one.roomy, one.lost) if one.tied else (1, False, 0.0))


def _seconds(question: Question, plans: list[Plan]) -> NDArray[np.float64]:
    """Of a step of each plan; those with equal stages are priced at once."""
    even = Policies.of([replace(plan.policy, stages=None) for plan in plans])
    prices = estimate(question.model, even, question.cluster, question.global_batch, question.constants).step_seconds
    pairs = zip((plan.policy for plan in plans), prices, strict=True)
    return np.array([question.predict(one).step_seconds if one.stages else price for one, price in pairs])
