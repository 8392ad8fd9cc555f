"""Modelled throughput: the profile of a method on a described cluster, beside computing at the pace of a named GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from commeff.cluster.modelled import modelled
from commeff.compressors import Layout
from commeff.experiments.planning.scale.methods import MethodChoice
from commeff.experiments.planning.scale.setting import LARGEST, ScalingSetting, powers
from commeff.experiments.planning.scale.workloads import Workload
from commeff.profiling import Operation, Profile, profile

WARM_UP = 16  # steps before a period is timed, in which delayed messages fill their queue
Scaling = Literal["weak", "strong"]


@dataclass(frozen=True)
class ScalingPoint:
    """n workers taking steps together.

    Parameters
    ----------
    cluster : its name.
    workload, unit : what is trained, and what a sample of it is.
    scaling : weak, the batch of a worker being fixed, or strong, that of all workers together.
    method : by its name.
    workers, gpus : how many, and on how many GPUs they sit.
    batch : samples of one worker in a step.
    compute, step : seconds of a step without communication and with it, in the mean over a period of the method.
    alone : samples per second of one worker that sends nothing, with the batch it has when it is alone.
    """

    cluster: str
    workload: str
    unit: str
    scaling: Scaling
    method: str
    workers: int
    gpus: int
    batch: float
    compute: float
    step: float
    alone: float

    @property
    def steps_per_second(self) -> float:
        """Model updates."""
        return 1 / self.step

    @property
    def samples_per_second(self) -> float:
        """The throughput of all workers together."""
        return self.workers * self.batch / self.step

    @property
    def ideal(self) -> float:
        """The throughput of as many workers that need not communicate."""
        return self.workers * self.alone

    @property
    def efficiency(self) -> float:
        """Throughput over the ideal one."""
        return self.samples_per_second / self.ideal

    def row(self) -> dict[str, Any]:
        """As a line of a table."""
        return {
            "cluster": self.cluster,
            "workload": self.workload,
            "scaling": self.scaling,
            "method": self.method,
            "workers": self.workers,
            "gpus": self.gpus,
            "batch_per_worker": round(self.batch, 3),
            "compute_seconds": _short(self.compute),
            "step_seconds": _short(self.step),
            "exposed_seconds": _short(self.step - self.compute),
            "steps_per_second": _short(self.steps_per_second),
            "samples_per_second": _short(self.samples_per_second),
            "ideal_samples_per_second": _short(self.ideal),
            "efficiency": round(self.efficiency, 4),
            "sample": self.unit,
        }


def _short(number: float) -> float:
    """Five digits.

    >>> _short(0.123456789), _short(123456.7)
    (0.12346, 123460.0)
    """
    return float(f"{number:.5g}")


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
        cluster=setting.cluster.name,
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
