"""Where the workers of `commeff scale` sit, and how many processes it measures on: read without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from commeff.cluster import Cluster, FatTree, names
from commeff.cluster.collectives import all_reduce
from commeff.cluster.groups import Groups
from commeff.experiments.run.system import cores

if TYPE_CHECKING:
    from commeff.experiments.planning.scale.workloads import Workload

Worker = Literal["node", "gpu"]
LARGEST = 1024  # workers that are modelled unless told
WORKLOADS = ("resnet50", "bert_large")  # of `workloads`
MOST = 256  # processes on a machine
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


class Numbers(NamedTuple):
    """What the options say beside the methods.

    Attributes
    ----------
    setting : where workers sit.
    processes : the numbers of processes that are measured.
    """

    setting: ScalingSetting
    processes: tuple[int, ...]


def read_numbers(
    cluster: str, workers: int, worker: Worker, overlap: float | None, global_batch: int, processes: str | None
) -> Numbers:
    """Read the options, or raise ValueError with the first that does not fit.

    Parameters
    ----------
    cluster, workers, worker, overlap, global_batch, processes : as on the command line.
    """
    setting = ScalingSetting(find_cluster(cluster), worker, overlap, global_batch)
    if workers < 0:
        raise ValueError(f"--workers must be at least 1, or 0 to model nothing, got {workers}")
    if workers > MOST_WORKERS:
        raise ValueError(f"--workers must be at most {MOST_WORKERS:,}, got {workers:,}")
    counts = read_counts(processes)
    if not workers and not counts:
        raise ValueError("--workers 0 and --processes 0 leave nothing to do; leave one of them out")
    return Numbers(setting, counts)


def check_workloads(names: Sequence[str]) -> None:
    """Refuse a workload that there is not.

    >>> check_workloads(["bert_large", "vgg"])
    Traceback (most recent call last):
    ValueError: --workload must be one of resnet50 bert_large, got vgg
    """
    for name in names:
        if name not in WORKLOADS:
            raise ValueError(f"--workload must be one of {' '.join(WORKLOADS)}, got {name}")


def find_cluster(cluster: str) -> Cluster:
    """A shipped cluster by its name, or your own by its file."""
    return Cluster.load(cluster) if cluster not in names() and Path(cluster).suffix else Cluster.named(cluster)


def read_counts(text: str | None) -> tuple[int, ...]:
    """Numbers of processes: as given, none for 0, else the powers of two up to the cores.

    >>> read_counts("2,1"), read_counts("0")
    ((1, 2), ())
    """
    if text is None:
        return tuple(powers(cores()))
    parts = [part.strip() for part in text.split(",")]
    if parts == ["0"]:
        return ()
    if not all(part.isdecimal() and 0 < int(part) <= MOST for part in parts):
        raise ValueError(
            f"--processes must be numbers from 1 to {MOST}, such as 1,2, or 0 to measure nothing, got {text}"
        )
    return tuple(sorted({int(part) for part in parts}))


def powers(largest: int) -> list[int]:
    """1, 2, 4, ... up to the largest.

    >>> powers(9)
    [1, 2, 4, 8]
    """
    if largest < 1:
        raise ValueError(f"workers must be at least 1, got {largest}")
    return [1 << k for k in range(largest.bit_length())]
