"""A cluster: equal nodes of GPUs and network cards, wired by a network; and the YAML files that describe one, shipped
ones and a user's own. Pure data; `collectives` says what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from commeff.cluster.hardware import GPU, Link, read_gpu, read_link, section
from commeff.cluster.network import Crossbar, Network, Ports, read_network
from commeff.files import regular
from commeff.require import did_you_mean

MOST = 10**8  # GPUs, or NICs of a node: what 64-bit numbers of links and messages allow
LARGEST = 1 << 20  # signs of a file that are read
SHIPPED = Path(__file__).parent / "named"


@dataclass(frozen=True)
class Cluster:
    """Equal nodes of `per_node` GPUs and `nics` network cards, wired by a network.

    Worker i sits on GPU i, GPU i in node i // per_node. The GPUs of a node share its NICs in equal consecutive groups.

    Parameters
    ----------
    name : of the description.
    gpus : all GPUs of the run: at most per_node, or a multiple of it.
    gpu : what each worker computes on.
    per_node, nics : GPUs and network cards of a node.
    intra : between two GPUs of one node.
    inter : one NIC.
    network : how the NICs are wired: `Crossbar`, `FatTree` or `Rails`.

    Examples
    --------
    >>> cluster = Cluster.named("a100_selene", gpus=1536)
    >>> cluster.nodes, cluster.nics, cluster.gpu.name
    (192, 8, 'A100-SXM4-80GB')
    >>> Cluster.named("a100_selene", gpus=12)
    Traceback (most recent call last):
    ValueError: GPUs on a100_selene must be at most 8 or a multiple of 8, got 12: its nodes are full or there is one;
    take 8 or 16
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
                raise ValueError(f"{what} on {self.name} must be a whole number from 1 on, got {count!r}")
            if count > MOST:
                raise ValueError(f"{what} on {self.name} must be at most {MOST:,}, got {count}")
        if self.gpus > self.per_node and self.gpus % self.per_node:
            below = self.gpus // self.per_node * self.per_node
            raise ValueError(
                f"GPUs on {self.name} must be at most {self.per_node} or a multiple of {self.per_node}, "
                f"got {self.gpus}: its nodes are full or there is one; take {below} or {below + self.per_node}"
            )

    @classmethod
    def named(cls, name: str, gpus: int | None = None) -> Cluster:
        """One of the shipped descriptions (`commeff.cluster.names()`), with as many GPUs as wanted.

        >>> Cluster.named("a100_selen")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: there is no cluster 'a100_selen'; did you mean a100_selene? There are a100_100g a100_10g ...
        """
        return cls.parse(shipped(name), name, gpus)

    @classmethod
    def load(cls, path: str | Path, gpus: int | None = None) -> Cluster:
        """A description of your own: a YAML file like the shipped ones, with as many GPUs as wanted."""
        path = Path(path)
        try:
            return cls.parse(read(path), path.stem, gpus)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, content: Any, name: str, gpus: int | None = None) -> Cluster:
        """A cluster from what a YAML file holds; its name is `name` unless the file gives one."""
        allowed = ("name", "like", "gpus", "per_node", "nics", "gpu", "intra", "inter", "network")
        keys = section("the description", _completed(content), allowed, ("gpu", "inter"))
        inter = read_link("inter", keys["inter"])
        per_node = keys.get("per_node", 1)
        if "intra" not in keys and type(per_node) is int and per_node > 1:
            raise ValueError(f"the key intra is missing; nodes of {per_node} GPUs need the link between two of them")
        return cls(
            name=str(keys.get("name", name)),
            gpus=keys.get("gpus", per_node) if gpus is None else gpus,
            gpu=read_gpu("gpu", keys["gpu"]),
            per_node=per_node,
            intra=read_link("intra", keys["intra"]) if "intra" in keys else inter,
            inter=inter,
            nics=keys.get("nics", 1),
            network=read_network("network", keys.get("network", {"kind": "crossbar"})),
        )

    def save(self, path: str | Path) -> None:
        """Write a YAML file that `load` reads, in SI units; a measured profile is kept so."""
        Path(path).write_text(yaml.safe_dump(self.description(), sort_keys=False))

    def description(self) -> dict[str, Any]:
        """The cluster as a YAML file describes it, in SI units."""
        return {
            "name": self.name,
            "gpus": self.gpus,
            "per_node": self.per_node,
            "nics": self.nics,
            "gpu": self.gpu.description(),
            "intra": asdict(self.intra),
            "inter": asdict(self.inter),
            "network": self.network.description(),
        }

    def with_gpus(self, gpus: int) -> Cluster:
        """A cluster of the same hardware with more or fewer nodes."""
        return replace(self, gpus=gpus)

    def with_inter(self, bandwidth: float | None = None, latency: float | None = None) -> Cluster:
        """The same cluster with another NIC; what is not given stays.

        >>> Cluster.named("a100_selene").with_inter(bandwidth=1e9).inter
        Link(bandwidth=1000000000.0, latency=6e-06, burst=0.0, efficiency=1.0)
        """
        settings = {"bandwidth": bandwidth, "latency": latency}
        changes = {name: value for name, value in settings.items() if value is not None}
        return replace(self, inter=replace(self.inter, **changes))

    def with_latency(self, intra: float = 1.0, inter: float = 1.0) -> Cluster:
        """The same cluster with latencies so many times as long: in a node, and between nodes, hops included."""
        inside, outside = replace(self.intra, latency=intra * self.intra.latency), inter * self.inter.latency
        network = self.network.with_hop(inter * self.network.hop)
        return replace(self.with_inter(latency=outside), intra=inside, network=network)

    @property
    def nodes(self) -> int:
        """Nodes in use."""
        return -(-self.gpus // self.per_node)

    @property
    def local(self) -> int:
        """GPUs in use in each node."""
        return min(self.gpus, self.per_node)

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
        """The numbers of the first `count` workers; of all GPUs by default."""
        count = self.gpus if count is None else count
        if not 1 <= count <= self.gpus:
            raise ValueError(
                f"workers on {self.name} must be 1 to {self.gpus}, got {count}: each sits on a GPU of its own; "
                f"give gpus={max(1, count)} or more"
            )
        return np.arange(count)


def names() -> list[str]:
    """The clusters that ship: a file each, and nodes behind one NIC by a rule (one_nic.yaml).

    >>> {"a100_selene", "rtx4090_25g"} < {*names()}
    True
    """
    return sorted([*(path.stem for path in SHIPPED.glob("*.yaml")), *_one_nic()])


def shipped(name: str) -> dict[str, Any]:
    """The content of the YAML file of a shipped cluster.

    >>> shipped("h100_10g")["inter"]["bandwidth"]
    '10 Gb/s'
    """
    if name not in names():
        near = did_you_mean(name, names()) or "."
        raise ValueError(f"there is no cluster {name!r}{near} There are {' '.join(names())}, and files of your own")
    return dict(_completed(_one_nic().get(name) or read(SHIPPED / f"{name}.yaml")))


def _completed(content: Any) -> Any:
    """Fill in the keys of the shipped cluster that it is `like`."""
    if not isinstance(content, Mapping) or "like" not in content:
        return content
    return {**shipped(str(content["like"])), **{key: content[key] for key in content if key != "like"}}


@cache
def _one_nic() -> dict[str, dict[str, Any]]:
    rule = read(SHIPPED.with_name("one_nic.yaml"))
    return {
        f"{node}_{nic}": {**content, "nics": 1, "inter": link, "network": {"kind": "crossbar"}}
        for node, content in rule["nodes"].items()
        for nic, link in rule["nics"].items()
    }


def read(path: Path) -> Any:
    """The content of a YAML file."""
    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            return yaml.safe_load(file.read(LARGEST))
    except OSError as error:
        raise ValueError(f"{error.strerror}; give a YAML file, or one of {' '.join(names())}") from None
    except RecursionError:
        raise ValueError("nested too deeply; a cluster takes three levels") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"not YAML{'' if mark is None else f', in line {mark.line + 1}'}") from None
