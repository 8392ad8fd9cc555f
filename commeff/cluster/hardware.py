"""Hardware described: links, GPUs and the cluster they make up. Bytes, seconds, FLOP/s; no prefixes, no bits.

Descriptions are pure data. What a collective or a step costs on them is computed in `commeff.cluster.costs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

import numpy as np

from commeff.cluster.network import Crossbar, Network, Ports

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
MOST = 10**8  # GPUs, or NICs of a node: what 64-bit numbers of links and messages allow


def positive(what: str, value: float, unit: str, zero: bool = False) -> None:
    """Refuse what is not a number above 0 (or at least 0)."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):
        raise ValueError(
            f"{what} of {value!r} was asked for; it is a number of {unit}, {'0 or above' if zero else 'above 0'}"
        )


@dataclass(frozen=True)
class Link:
    """A connection, one direction: a message of S bytes takes  latency + max(0, S - burst) / bandwidth  seconds.

    Parameters
    ----------
    bandwidth : bytes per second that an application gets.
    latency : seconds before the first byte arrives, software included.
    burst : bytes that pass at once before the rate limit is felt (a token bucket; 0 on ordinary links).

    >>> Link(bandwidth=1e9, latency=1e-5).seconds(1e6)
    0.00101
    """

    bandwidth: float
    latency: float
    burst: float = 0.0

    def __post_init__(self) -> None:
        positive("a bandwidth", self.bandwidth, "bytes/s")
        positive("a latency", self.latency, "seconds", zero=True)
        positive("a burst", self.burst, "bytes", zero=True)

    def seconds(self, size: float, messages: float = 1) -> float:
        """`size` bytes in `messages` rounds that wait for each other; the burst is available once."""
        return messages * self.latency + max(0.0, size - self.burst) / self.bandwidth


@dataclass(frozen=True)
class GPU:
    """What computes for one worker (a CPU too).

    Parameters
    ----------
    memory_bytes, memory_bandwidth : bytes, bytes/s.
    peak_flops : dense FLOP/s by precision, some of fp32 tf32 bf16 fp16 fp8.
    hour_cost : US dollars for one hour of one GPU, or None if not known.
    """

    name: str
    memory_bytes: float
    memory_bandwidth: float
    peak_flops: Mapping[str, float] = field(hash=False)
    hour_cost: float | None = None

    def __post_init__(self) -> None:
        positive(f"memory ({self.name})", self.memory_bytes, "bytes")
        positive(f"a memory bandwidth ({self.name})", self.memory_bandwidth, "bytes/s")
        if not self.peak_flops:
            raise ValueError(f"the GPU {self.name} has no peak; give FLOP/s for some of {' '.join(PRECISIONS)}")
        for precision, peak in self.peak_flops.items():
            if precision not in PRECISIONS:
                raise ValueError(f"there is no precision {precision!r} ({self.name}); choose of {' '.join(PRECISIONS)}")
            positive(f"a {precision} peak ({self.name})", peak, "FLOP/s")
        if self.hour_cost is not None:
            positive(f"an hour's cost ({self.name})", self.hour_cost, "US dollars", zero=True)


@dataclass(frozen=True)
class Cluster:
    """Equal nodes of `per_node` GPUs and `nics` network cards, wired by a network.

    Worker i sits on GPU i, GPU i in node i // per_node. The GPUs of a node share its NICs in equal consecutive groups.

    Parameters
    ----------
    gpus : all GPUs of the run: at most per_node, or a multiple of it.
    intra : between two GPUs of one node.
    inter : one NIC.
    network : how the NICs are wired: `Crossbar`, `FatTree` or `Rails`.

    >>> cluster = Cluster.named("a100_selene", gpus=1536)
    >>> cluster.nodes, cluster.nics, cluster.gpu.name
    (192, 8, 'A100-SXM4-80GB')
    >>> Cluster.named("a100_selene", gpus=12)
    Traceback (most recent call last):
    ValueError: 12 GPUs on a100_selene were asked for;
    its nodes have 8, so take at most 8 or a multiple, such as 8 or 16
    """

    name: str
    gpus: int
    gpu: GPU
    per_node: int
    intra: Link
    inter: Link
    nics: int = 1
    network: Network = field(default_factory=Crossbar)

    def __post_init__(self) -> None:
        for what, count in (("GPUs per node", self.per_node), ("NICs per node", self.nics), ("GPUs", self.gpus)):
            if type(count) is not int or count < 1:
                raise ValueError(f"{count!r} {what} on {self.name} were asked for; it is a whole number, at least 1")
            if count > MOST:
                raise ValueError(f"{count} {what} on {self.name} were asked for; a cluster has at most {MOST:,}")
        if self.gpus > self.per_node and self.gpus % self.per_node:
            below = self.gpus // self.per_node * self.per_node
            raise ValueError(
                f"{self.gpus} GPUs on {self.name} were asked for; its nodes have {self.per_node}, "
                f"so take at most {self.per_node} or a multiple, such as {below} or {below + self.per_node}"
            )

    @classmethod
    def named(cls, name: str, gpus: int | None = None) -> Cluster:
        """One of the shipped descriptions (`commeff.cluster.names()`), with as many GPUs as wanted."""
        from commeff.cluster.description import named

        return named(name, gpus)

    @classmethod
    def load(cls, path: str | Path, gpus: int | None = None) -> Cluster:
        """A description of your own: a YAML file like the shipped ones, with as many GPUs as wanted."""
        from commeff.cluster.description import load

        return load(path, gpus)

    def save(self, path: str | Path) -> None:
        """Write a YAML file that `load` reads."""
        from commeff.cluster.description import save

        save(self, path)

    def with_gpus(self, gpus: int) -> Cluster:
        """The same hardware, more or fewer nodes of it."""
        return replace(self, gpus=gpus)

    def with_inter(self, bandwidth: float | None = None, latency: float | None = None) -> Cluster:
        """The same cluster with another NIC.

        >>> Cluster.named("v100_25g").with_inter(bandwidth=1e9).inter
        Link(bandwidth=1000000000.0, latency=3e-05, burst=0.0)
        """
        inter = self.inter
        return replace(
            self,
            inter=replace(
                inter,
                bandwidth=inter.bandwidth if bandwidth is None else bandwidth,
                latency=inter.latency if latency is None else latency,
            ),
        )

    @property
    def nodes(self) -> int:
        """Nodes in use."""
        return -(-self.gpus // self.per_node)

    @property
    def local(self) -> int:
        """GPUs in use in each node."""
        return min(self.gpus, self.per_node)

    @property
    def inter_share(self) -> Link:
        """What each GPU of a node gets of the NICs while all GPUs of the node send to other nodes at once.

        >>> four = Cluster.named("a100_4nic", gpus=64)
        >>> four.inter_share.bandwidth / four.inter.bandwidth
        0.5
        """
        return replace(self.inter, bandwidth=self.inter.bandwidth / -(-self.local // self.nics))

    def node_of(self, workers: Ports) -> Ports:
        """The nodes in which workers sit."""
        return workers // self.per_node

    def port_of(self, workers: Ports) -> Ports:
        """The NICs that workers use, counted over all nodes: node * nics + NIC."""
        place = workers % self.per_node
        return self.node_of(workers) * self.nics + (
            place * self.nics // self.local if self.nics < self.local else place
        )

    def workers(self, count: int | None = None) -> Ports:
        """The numbers of the first `count` workers; all GPUs unless told."""
        count = self.gpus if count is None else count
        if count < 1:
            raise ValueError(f"{count} workers were asked for on {self.name}; it takes at least 1")
        if count > self.gpus:
            raise ValueError(
                f"{count} workers were asked for on {self.gpus} GPUs of {self.name}; take more GPUs: gpus={count}"
            )
        return np.arange(count)
