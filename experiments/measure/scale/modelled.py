"""Modelled throughput: the profile of a method on a described cluster, beside computing at the pace of a named GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from commeff.cluster import Cluster, FatTree
from commeff.cluster.collectives import all_reduce
from commeff.cluster.groups import Groups
from commeff.cluster.modelled import modelled
from commeff.compressors import Layout
from commeff.experiments.measure.scale.methods import MethodChoice
from commeff.experiments.measure.scale.points import Scaling, ScalingPoint
from commeff.experiments.measure.scale.workloads import Workload
from commeff.profiling import Operation, Profile, profile

Worker = Literal["node", "gpu"]
LARGEST = 1024
WARM_UP = 16  # steps before a period is timed, in which delayed messages fill their queue


@dataclass(frozen=True)
class ScalingSetting:
    """Where the workers sit.

    Attributes
    ----------
    cluster : whose nodes and links there are as many of as needed.
    worker : "node", whose GPUs average their gradients inside in every step and which is one worker outside, with all
        NICs of the node; or "gpu", each a worker of its own, which share the NICs.
    overlap : the share of computing behind which any communication among workers can hide; None: what its method can
        hide, as its profile says.
    global_batch : samples of all workers in a step, for strong scaling.
    """

    cluster: Cluster
    worker: Worker = "node"
    overlap: float | None = None
    global_batch: int = 8192

    def __post_init__(self) -> None:
        if self.worker == "node" and self.cluster.nics > 1 and isinstance(self.cluster.network, FatTree):
            raise ValueError(
                f"--worker must be gpu on {self.cluster.name}, got node: the {self.cluster.nics} NICs of a node count "
                "as one only on a crossbar or on rails, and this is one fat tree"
            )
        if self.overlap is not None and not 0 <= self.overlap <= 1:
            raise ValueError(f"--overlap must be 0 to 1, got {self.overlap}: it is a share of computing")
        if self.global_batch < self.inside:
            raise ValueError(
                f"--global-batch must be at least {self.inside}, got {self.global_batch}: a worker has that many GPUs"
            )

    @property
    def inside(self) -> int:
        """GPUs of one worker."""
        return self.cluster.per_node if self.worker == "node" else 1

    def among(self, n: int) -> Cluster:
        """The cluster as n workers see it."""
        if self.worker == "gpu":
            return self.cluster.with_gpus(n)
        outside = replace(self.cluster.inter, bandwidth=self.cluster.inter.bandwidth * self.cluster.nics)
        return replace(self.cluster, per_node=1, gpus=n, nics=1, intra=outside, inter=outside)

    def fits(self, n: int) -> bool:
        """Whether n workers fill whole nodes."""
        return self.worker == "node" or n <= self.cluster.per_node or n % self.cluster.per_node == 0

    def computing(self, workload: Workload, batch: float) -> float:
        """Seconds of a worker on `batch` samples: its GPUs compute, then average among themselves."""
        node = Groups.first(self.cluster.with_gpus(self.inside), self.inside)
        return batch / self.inside / workload.per_second + float(all_reduce(node, workload.bytes))


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
        return [
            each._replace(step=each.step - first, waited=each.waited - first)
            for each in self.profile.operations(first + step)
        ]


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


def powers(largest: int) -> list[int]:
    """1, 2, 4, ... up to the largest.

    >>> powers(9)
    [1, 2, 4, 8]
    """
    if largest < 1:
        raise ValueError(f"workers must be at least 1, got {largest}")
    return [1 << k for k in range(largest.bit_length())]


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
