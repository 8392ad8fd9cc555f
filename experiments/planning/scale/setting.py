"""Where the workers of `commeff scale` sit: read without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from commeff.cluster import Cluster, FatTree
from commeff.cluster.collectives import all_reduce
from commeff.cluster.groups import Groups
from commeff.cluster.places import read_place

if TYPE_CHECKING:
    from commeff.experiments.planning.scale.workloads import Workload

Worker = Literal["node", "gpu"]
LARGEST = 1024  # workers that are modelled unless told
WORKLOADS = ("resnet50", "bert_large")  # of `workloads`
MOST_WORKERS = 100_000


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
        if self.worker == "node" and self.cluster.nics > 1 and type(self.cluster.network) is FatTree:
            raise ValueError(
                f"--worker must be gpu on {self.cluster.name}, got node: the {self.cluster.nics} NICs of a node count "
                "as one only on a crossbar or on rails, and this is one fat tree"
            )
        if self.overlap is not None and not 0 <= self.overlap <= 1:
            raise ValueError(f"--overlap must be 0 to 1, got {self.overlap}")
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


def read_setting(
    cluster: str, workers: int, worker: Worker, overlap: float | None, global_batch: int
) -> ScalingSetting:
    """Read the options, or raise ValueError with the first that does not fit.

    Parameters
    ----------
    cluster, workers, worker, overlap, global_batch : as on the command line.
    """
    if not 1 <= workers <= MOST_WORKERS:
        raise ValueError(f"--workers must be 1 to {MOST_WORKERS:,}, got {workers:,}")
    return ScalingSetting(read_place({"cluster": cluster}).cluster, worker, overlap, global_batch)


def check_workloads(names: Sequence[str]) -> None:
    """Refuse a workload that there is not.

    >>> check_workloads(["bert_large", "vgg"])
    Traceback (most recent call last):
    ValueError: --workload must be one of resnet50 bert_large, got vgg
    """
    for name in names:
        if name not in WORKLOADS:
            raise ValueError(f"--workload must be one of {' '.join(WORKLOADS)}, got {name}")
