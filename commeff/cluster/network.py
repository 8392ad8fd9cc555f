"""Networks between nodes: which links a message crosses, and how loaded the busiest link gets.

A network connects *ports*, the NICs of all nodes in order. Every link carries one NIC's bandwidth each way, and
messages that share a link share it: a set of messages that start together is over when the most loaded link has moved
its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from commeff.cluster.hardware import quantity, section
from commeff.require import did_you_mean

Ports = NDArray[np.int64]
Sizes = NDArray[np.float64]
Counts = NDArray[np.int64] | int
KINDS = {"crossbar": ("hop",), "fat_tree": ("down", "up", "hop"), "rails": ("down", "up", "hop", "pxn")}


class Traffic(NamedTuple):
    """The load of messages on a network: bytes over the busiest link, links on the longest path."""

    load: float
    links: int


def busiest(links: Ports, sizes: Sizes) -> float:
    """The largest sum of bytes with the same link number.

    >>> busiest(np.array([3, 3, 5]), np.array([1.0, 2.0, 2.5]))
    3.0
    """
    return float(np.bincount(links, sizes).max()) if links.size else 0.0


@dataclass(frozen=True)
class FatTree:
    """Switches in levels above the ports. At the top, one for each of the prod(up) ways up, which connects everything.

    Routes are static, destination modulo k: on its way up a message for port d takes, at level l, the link

        d // (up[0] ... up[l-1])  mod  up[l],

    so the ways up and down follow from d alone. This is what InfiniBand subnet managers compute for fat trees (Zahavi,
    "D-Mod-K routing", 2010) and what SimGrid simulates. `down[l] / up[l]` is the oversubscription of level l.

    Parameters
    ----------
    down, up : children under and links above each switch of level l, from the ports upwards.
    hop : seconds that each link adds to the latency.

    Examples
    --------
    >>> tree = FatTree(down=(16,), up=(4,))           # 16 hosts on a leaf switch with 4 links to 4 spines: 4:1
    >>> hosts = np.arange(256)
    >>> [tree.traffic(hosts, (hosts + away) % 256, np.ones(256)) for away in (1, 8, 64)]
    [Traffic(load=1.0, links=4), Traffic(load=2.0, links=4), Traffic(load=4.0, links=4)]
    """

    down: tuple[int, ...]
    up: tuple[int, ...]
    hop: float = 0.0

    def __post_init__(self) -> None:
        if len(self.down) != len(self.up):
            raise ValueError(
                f"down and up of a fat tree must have equal lengths, got down={list(self.down)} and "
                f"up={list(self.up)}: give children and uplinks for each level below the top"
            )
        if min((*self.down, *self.up), default=1) < 1:
            raise ValueError(
                f"down and up of a fat tree must be at least 1, got down={list(self.down)} and "
                f"up={list(self.up)}: every switch has a child and an uplink"
            )
        if not 0 <= self.hop < float("inf"):
            raise ValueError(f"hop must be a number of seconds from 0 on, got {self.hop}")

    def with_hop(self, hop: float) -> FatTree:
        """The same switches, each link of which adds so many seconds."""
        return replace(self, hop=hop)

    def description(self) -> dict[str, Any]:
        """The network as a YAML file describes it."""
        return {"kind": "fat_tree", "down": [*self.down], "up": [*self.up], "hop": self.hop}

    def thin(self, nics: int) -> list[tuple[float, int]]:
        """Of each oversubscribed level, nodes of so many NICs under a switch, and its uplinks, each as fast as a NIC.

        >>> FatTree(down=(16, 4), up=(4, 4)).thin(nics=8)
        [(2.0, 4), (8.0, 16)]
        """
        levels = zip(accumulate(self.down, mul), accumulate(self.up, mul), strict=True)
        return [(ports / nics, uplinks) for ports, uplinks in levels if uplinks < ports]

    def longest_path(self, nodes: Counts, nics: int = 1) -> Counts:
        """Links on the longest path between two of the first `nodes` nodes of `nics` NICs each.

        They are two up to the level whose switches hold all the ports.

        >>> FatTree(down=(16, 4), up=(16, 4)).longest_path(np.array([2, 16, 17, 64, 65])).tolist()
        [2, 2, 4, 4, 6]
        """
        holds, links = 1, 2 * np.ones_like(nodes)
        for children in self.down:
            holds *= children
            links = links + 2 * (np.asarray(nodes) * nics > holds)
        return links

    def traffic(self, sources: Ports, destinations: Ports, sizes: Sizes, nics: int = 1) -> Traffic:
        """Bytes over the busiest link and links on the longest path, when all messages are sent at once.

        Links of a level are numbered by the switch or port below them and the way taken so far.

        Parameters
        ----------
        sources, destinations : (messages,) ports; port p is NIC p % nics of node p // nics.
        sizes : (messages,) bytes.
        nics : NICs in each node.
        """
        sender, receiver, port, size = sources, destinations, destinations, sizes
        load, links, ways, way = 0.0, 0, 1, np.zeros_like(destinations)
        for children, uplinks in zip((1, *self.down), (1, *self.up), strict=True):
            sender, receiver = sender // children, receiver // children
            rising = sender != receiver
            sender, receiver, port, size, way = (array[rising] for array in (sender, receiver, port, size, way))
            if not size.size:
                break
            way = way + port // ways % uplinks * ways
            ways *= uplinks
            load = max(load, busiest(sender * ways + way, size), busiest(receiver * ways + way, size))
            links += 2
        return Traffic(load, links)


@dataclass(frozen=True)
class Crossbar(FatTree):
    """One switch, a tree without levels: messages meet only at the NICs themselves.

    >>> hosts = np.arange(8)
    >>> Crossbar().traffic(hosts, np.zeros(8, dtype=int), np.ones(8))          # seven send to the first
    Traffic(load=7.0, links=2)
    """

    down: tuple[int, ...] = field(default=(), init=False, repr=False)
    up: tuple[int, ...] = field(default=(), init=False, repr=False)

    def description(self) -> dict[str, Any]:
        """Kind and hop, as in a YAML file."""
        return {"kind": "crossbar", "hop": self.hop}


@dataclass(frozen=True)
class Rails:
    """NIC r of every node on a network of its own, rail r, all wired as `rail` says.

    A message for a GPU on another rail changes rails inside the node of its sender, over NVLink, so it travels on the
    rail of its destination (NCCL calls this PXN). Without `pxn` it passes the top of the trees, where all rails meet.

    >>> first, second = np.array([0, 1]), np.array([2, 2])            # two NICs of node 0 to NIC 0 of node 1
    >>> Rails().traffic(first, second, np.ones(2), nics=2)
    Traffic(load=2.0, links=2)
    >>> [Rails(FatTree((2,), (1,)), pxn).traffic(first, second, np.ones(2), nics=2).links for pxn in (True, False)]
    [2, 4]
    """

    rail: FatTree = Crossbar()
    pxn: bool = True

    @property
    def hop(self) -> float:
        """Seconds that each link of a rail adds."""
        return self.rail.hop

    def with_hop(self, hop: float) -> Rails:
        """See `FatTree.with_hop`: of each rail."""
        return replace(self, rail=self.rail.with_hop(hop))

    def description(self) -> dict[str, Any]:
        """The keys of one rail, kind `rails`, and `pxn` where there is none."""
        return {**self.rail.description(), "kind": "rails", **({} if self.pxn else {"pxn": False})}

    def thin(self, nics: int) -> list[tuple[float, int]]:
        """See `FatTree.thin`: a switch of each rail, taken together, has a NIC of each node."""
        return [(ports, nics * uplinks) for ports, uplinks in self.rail.thin(1)]

    def longest_path(self, nodes: Counts, nics: int = 1) -> Counts:
        """That of one rail, where every node has one NIC; without `pxn` that over the top."""
        return self.rail.longest_path(nodes) if self.pxn else 2 + 2 * len(self.rail.down) + 0 * nodes

    def traffic(self, sources: Ports, destinations: Ports, sizes: Sizes, nics: int = 1) -> Traffic:
        """See `FatTree.traffic`: the busiest rail."""
        if not self.pxn:
            leaves = int(np.prod(self.rail.down))
            length = -(-(int(max(sources.max(initial=0), destinations.max(initial=0))) // nics + 1) // leaves) * leaves
            start, end = (ports % nics * length + ports // nics for ports in (sources, destinations))
            return self.rail.traffic(start, end, sizes)
        rails = destinations % nics
        per_rail = [
            self.rail.traffic(sources[rails == rail] // nics, destinations[rails == rail] // nics, sizes[rails == rail])
            for rail in range(nics)
        ]
        return Traffic(max(t.load for t in per_rail), max(t.links for t in per_rail))


Network = FatTree | Rails  # how the NICs of a cluster are wired


def read_network(where: str, content: Any) -> Network:
    """A network: {kind: crossbar}, {kind: fat_tree, down: [16], up: [4]} or {kind: rails}, the rails being crossbars or
    trees of their own; `hop` is what each link adds.
    """
    keys = section(where, content, ("kind", *KINDS["rails"]), ("kind",))
    kind = keys["kind"]
    if kind not in (*KINDS,):
        near = did_you_mean(str(kind), KINDS) or "."
        raise ValueError(f"{where}: there is no kind {kind!r}{near} There are {' '.join(KINDS)}")
    section(where, content, ("kind", *KINDS[kind]), ("down", "up") if kind == "fat_tree" else ())
    hop = quantity(f"{where}: hop", keys.get("hop", 0), "seconds")
    if kind == "crossbar":
        return Crossbar(hop)
    down, up = (_counts(f"{where}: {key}", keys.get(key, [])) for key in ("down", "up"))
    tree = FatTree(down, up, hop) if down or up else Crossbar(hop)
    pxn = keys.get("pxn", True)
    if type(pxn) is not bool:
        raise ValueError(f"{where}: pxn must be true or false, got {pxn!r}")
    return tree if kind == "fat_tree" else Rails(tree, pxn)


def _counts(where: str, content: Any) -> tuple[int, ...]:
    """A list of whole numbers."""
    if not isinstance(content, list) or not all(type(item) is int for item in content):
        raise ValueError(f"{where}: {content!r} is not a list of whole numbers, one for each level, such as [16]")
    return tuple(content)
