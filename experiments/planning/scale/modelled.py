"""Modelled throughput: the profile of a method on a described cluster, beside computing at the pace of a named GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from commeff.cluster.modelled import modelled
from commeff.compressors import Layout
from commeff.experiments.planning.scale.methods import MethodChoice
from commeff.experiments.planning.scale.points import Scaling, ScalingPoint
from commeff.experiments.planning.scale.setting import LARGEST, ScalingSetting, powers
from commeff.experiments.planning.scale.workloads import Workload
from commeff.profiling import Operation, Profile, profile

WARM_UP = 16  # steps before a period is timed, in which delayed messages fill their queue


@dataclass(frozen=True, eq=False)
class SteadySchedule:
    """The schedule of a profile from the step on from which its operations repeat."""

    profile: Profile

    @property
    def workers(self) -> int:
        """n."""
        return self.profile.workers

    @property
    def first(self) -> int:
        """0."""
        return 0

    @property
    def period(self) -> int:
        """After how many steps they repeat."""
        return self.profile.period

    def operations(self, step: int) -> Sequence[Operation]:
        """What is sent in a step, in order."""
        first = self.profile.first
        return [each.moved(-first) for each in self.profile.operations(first + step)]


@cache
def profiled(method: MethodChoice, layout: Layout, n: int) -> tuple[Profile, int]:
    """What n workers send, and the minibatches of a step."""
    strategy, collective = method.build(n)
    return profile(strategy, layout, n, collective=collective), strategy.accumulate


def communicated(setting: ScalingSetting, description: Profile, compute: float) -> float:
    """Seconds of a step in the mean over a period."""
    period = description.period
    before = -(-WARM_UP // period) * period
    run = modelled(
        SteadySchedule(description),
        setting.among(description.workers),
        steps=before + period,
        compute=compute,
        overlap=setting.overlap,
    )
    return float(run.by_step[-1] - run.by_step[before - 1]) / period


def point(setting: ScalingSetting, workload: Workload, scaling: Scaling, method: MethodChoice, n: int) -> ScalingPoint:
    """n workers by one method.

    Weak scaling: each GPU has the workload's batch. Strong: the n-th part of the global batch for each worker, and time
    falls with it in proportion, which a real GPU does not reach with few samples. A method of several minibatches in a
    step takes as many of these.
    """
    full = float(workload.batch * setting.inside)
    first, batch = (full, full) if scaling == "weak" else (setting.global_batch, setting.global_batch / n)
    description, minibatches = profiled(method, workload.layout, n) if n > 1 else (None, 1)
    compute = minibatches * setting.computing(workload, batch)
    return ScalingPoint(
        source="modelled",
        place=setting.cluster.name,
        workload=workload.name,
        unit=workload.unit,
        scaling=scaling,
        method=method.name,
        workers=n,
        gpus=n * setting.inside,
        batch=minibatches * batch,
        compute=compute,
        step=communicated(setting, description, compute) if description is not None else compute,
        alone=first / setting.computing(workload, first),
    )


def curves(
    setting: ScalingSetting, workloads: Sequence[Workload], methods: Sequence[MethodChoice], largest: int = LARGEST
) -> list[ScalingPoint]:
    """All points: weak and strong scaling of each workload by each method, on 1, 2, 4, ... workers.

    Strong scaling ends where a GPU has less than one sample.
    """
    numbers = [n for n in powers(largest) if setting.fits(n)]
    points = []
    for workload in workloads:
        for method in methods:
            points += [point(setting, workload, "weak", method, n) for n in numbers]
            enough = [n for n in numbers if n * setting.inside <= setting.global_batch]
            points += [point(setting, workload, "strong", method, n) for n in enough]
    return points
