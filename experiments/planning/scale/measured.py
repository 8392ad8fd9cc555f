"""Measured throughput of the processes at hand: forks of one thread each, which share memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import lcm

from commeff.compressors import Layout
from commeff.experiments.planning.scale.methods import MethodChoice
from commeff.experiments.planning.scale.points import Scaling, ScalingPoint
from commeff.experiments.planning.scale.processes import LOCAL, ScalingCase, seconds
from commeff.experiments.planning.scale.subjects import SUBJECTS, TimedModel
from commeff.experiments.run.system import cores
from commeff.profiling import profile

SMALL_FIRST = tuple(reversed(SUBJECTS))  # ResNet-20 sends little for what it computes, the MLP much
ROUNDS = 5
LONGEST_BLOCK = 64  # steps, which all methods take in turns


def block(methods: Sequence[MethodChoice], n: int) -> int:
    """Steps of a block that holds whole periods of every method.

    Raises
    ------
    ValueError
        If that were too many steps.
    """
    steps = lcm(*(profile(method.build(n)[0], Layout.flat(64), n).period for method in methods))
    if steps > LONGEST_BLOCK:
        raise ValueError(
            f"methods must repeat together within {LONGEST_BLOCK} steps to be measured, got {steps}: a block of steps "
            "holds whole periods of all; shorten their periods, or measure nothing with --processes 0"
        )
    return steps


def curves(
    processes: Sequence[int],
    methods: Sequence[MethodChoice],
    subjects: Sequence[TimedModel] = SMALL_FIRST,
    rounds: int = ROUNDS,
) -> list[ScalingPoint]:
    """Weak and strong scaling of each model by each method. One process is the plain loop, by whatever method.

    Strong scaling divides the batch of one process, and leaves out numbers that do not divide it.
    """
    points = []
    by_name = {method.name: method for method in methods}
    steps = block(methods, max(2, *processes))
    for subject in subjects:
        whole = subject.inputs[0]
        plans: list[tuple[Scaling, int, int]] = [("weak", n, whole) for n in processes]
        plans += [("strong", n, whole // n) for n in processes if whole % n == 0]
        cases = [ScalingCase(1, whole, LOCAL)]
        for _, n, batch in plans:
            cases += [ScalingCase(n, batch, name) for name in (LOCAL, *by_name)] if n > 1 else []
        times = seconds(
            subject, list(dict.fromkeys(cases)), lambda case: by_name[case.method].build(case.n), rounds, steps
        )
        make = partial(point, subject, times)
        points += [make(scaling, n, batch, method) for scaling, n, batch in plans for method in methods]
    return points


def point(
    subject: TimedModel, times: dict[ScalingCase, float], scaling: Scaling, n: int, batch: int, method: MethodChoice
) -> ScalingPoint:
    """What one case has shown."""
    whole, minibatches = subject.inputs[0], method.build(n)[0].accumulate if n > 1 else 1
    return ScalingPoint(
        source="measured",
        place=f"{cores()} cores",
        workload=subject.name,
        unit="samples",
        scaling=scaling,
        method=method.name,
        workers=n,
        gpus=n,
        batch=minibatches * batch,
        compute=minibatches * times[ScalingCase(n, batch, LOCAL)],
        step=times[ScalingCase(n, batch, method.name if n > 1 else LOCAL)],
        alone=whole / times[ScalingCase(1, whole, LOCAL)],
        oversubscribed=n > cores(),
    )
