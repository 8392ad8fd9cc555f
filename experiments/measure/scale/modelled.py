"""Modelled throughput: what a method sends, on a described cluster, after computing for as long as a named GPU does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from commeff.cluster import Cluster, FatTree, collectives
from commeff.cluster.billing import Recorded
from commeff.cluster.groups import Groups
from commeff.cluster.modelled import modelled
from commeff.experiments.measure.scale.points import Point, Scaling
from commeff.experiments.measure.scale.sending import Choices, sending
from commeff.experiments.measure.scale.workloads import Workload

Worker = Literal["node", "gpu"]
LARGEST = 1024


@dataclass(frozen=True)
class Setting:
    """Where the workers sit.

    Parameters
    ----------
    cluster : whose nodes and links there are as many of as needed.
    worker : "node", whose GPUs average their gradients inside by a ring in every step and which is one worker outside,
    with all NICs of the node; or "gpu", each a worker of its own, which share the NICs.
    overlap : the share of computing behind which communication among workers can hide.
    choices : of the methods.
    global_batch : samples of all workers in a step, for strong scaling.
    """

    cluster: Cluster
    worker: Worker = "node"
    overlap: float = 0.0
    choices: Choices = field(default_factory=Choices)
    global_batch: int = 8192

    def __post_init__(self) -> None:
        if self.worker == "node" and self.cluster.nics > 1 and isinstance(self.cluster.network, FatTree):
            raise ValueError(
                f"nodes of {self.cluster.nics} NICs on one fat tree ({self.cluster.name}) were asked for as workers; "
                "a node's NICs count as one only on a crossbar or on rails: take --worker gpu"
            )
        if not 0 <= self.overlap <= 1:
            raise ValueError(f"an overlap of {self.overlap} was asked for; it is a share of computing, 0 to 1")
        if self.global_batch < self.inside:
            raise ValueError(
                f"a global batch of {self.global_batch} on workers of {self.inside} GPUs was asked for; "
                f"take {self.inside} samples or more"
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
        node = self.cluster.with_gpus(self.inside)
        return batch / self.inside / workload.per_second + float(
            collectives.all_reduce(Groups.first(node, self.inside), workload.bytes)
        )


def powers(largest: int) -> list[int]:
    """1, 2, 4, ... up to the largest.

    >>> powers(9)
    [1, 2, 4, 8]
    """
    if largest < 1:
        raise ValueError(f"{largest} workers at most were asked for; take 1 or more")
    return [1 << k for k in range(largest.bit_length())]


def point(setting: Setting, workload: Workload, scaling: Scaling, method: str, n: int) -> Point:
    """n workers by one method.

    Weak scaling: each GPU has the workload's batch. Strong: the n-th part of the global batch for each worker, and time
    falls with it in proportion, which a real GPU does not reach with few samples.
    """
    full = float(workload.batch * setting.inside)
    first, batch = (full, full) if scaling == "weak" else (setting.global_batch, setting.global_batch / n)
    compute, said = setting.computing(workload, batch), sending(method, n, workload.parameters, setting.choices)
    run = modelled(
        Recorded(said.rows, n, said.topology),
        setting.among(n),
        steps=said.steps,
        compute=compute,
        overlap=setting.overlap,
    )
    return Point(
        source="modelled",
        place=setting.cluster.name,
        workload=workload.name,
        unit=workload.unit,
        scaling=scaling,
        method=method,
        workers=n,
        gpus=n * setting.inside,
        batch=batch,
        compute=compute,
        step=run.total / said.steps,
        alone=first / setting.computing(workload, first),
    )


def curves(
    setting: Setting, workloads: Sequence[Workload], methods: Sequence[str], largest: int = LARGEST
) -> list[Point]:
    """All points: weak and strong scaling of each workload by each method, on 1, 2, 4, ... workers.

    Strong scaling ends where a GPU has less than one sample.
    """
    numbers = [n for n in powers(largest) if setting.fits(n)]
    found = []
    for workload in workloads:
        for method in methods:
            found += [point(setting, workload, "weak", method, n) for n in numbers]
            enough = [n for n in numbers if n * setting.inside <= setting.global_batch]
            found += [point(setting, workload, "strong", method, n) for n in enough]
    return found
