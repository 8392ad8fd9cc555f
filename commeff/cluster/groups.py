"""Groups of workers that run the same collective at once: who shares a node, and how NICs are shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commeff.cluster.cluster import Cluster
from commeff.cluster.hardware import Link
from commeff.cluster.network import Rails

Numbers = NDArray[Any]
Under = Callable[[int], list[tuple[Numbers, Numbers | int]]]  # members of a group, and all who talk, of so many workers


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups as arrays that broadcast against each other, so that one formula prices one group or a million.

    Parameters
    ----------
    size : n, workers of a group.
    inside : g, members in a node; of a last node that is not full, as many as in the others.
    load : bytes through the busiest NIC for each byte that a group passes from node to node, spread evenly over its
        members: 1/4 where a group has four NICs of each node for itself, 2 where two groups share one NIC.
    crowd : members of all groups behind the busiest NIC, each of which may send for itself.
    intra : the link between two GPUs of a node.
    inter : one NIC, with the hops of the longest path in its latency.
    switches : of levels of the network that are oversubscribed, members of a group under one, or n, and bytes over its
        busiest uplink for each byte through the busiest NIC if all that leaves the nodes leaves it too.
    rails : between which messages to any other member cross at the top of the network.

    >>> cluster = Cluster.named("a100_4nic", gpus=64)            # two of eight GPUs behind each NIC
    >>> Groups.strided(cluster, np.array([64, 8, 8]), np.array([1, 1, 8])).load.tolist()
    [0.25, 0.25, 2.0]
    """

    size: Numbers
    inside: Numbers
    load: Numbers
    crowd: Numbers | int
    intra: Link
    inter: Link
    switches: Sequence[tuple[Numbers, Numbers]] = ()
    rails: Numbers | int = 1
    cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)  # what `collectives` worked out

    @classmethod
    def first(cls, cluster: Cluster, size: Numbers | int) -> Groups:
        """The first n workers of a cluster, while nobody else talks. Their last node may be partly filled.

        The members of a node that is not full pass on what g members pass elsewhere.

        >>> cluster = Cluster.named("a100_4nic", gpus=16)
        >>> groups = Groups.first(cluster, np.array([8, 9, 12, 16]))
        >>> groups.nodes.tolist(), groups.load.tolist()
        ([1.0, 2.0, 2.0, 2.0], [0.25, 1.0, 0.5, 0.25])
        """
        n = np.asarray(size)
        for count in (int(n.min()), int(n.max())) if n.size else ():
            cluster.workers(count)
        inside, behind = np.minimum(n, cluster.local), -(-cluster.local // cluster.nics)
        last = n - (-(-n // inside) - 1) * inside
        most = np.minimum(inside, -(-inside * behind // np.minimum(last, inside)))
        links = cluster.network.longest_path(-(-n // inside), cluster.nics)
        return cls._of(cluster, n, inside, most / inside, links, lambda workers: [(np.minimum(n, workers),) * 2])

    @classmethod
    def of(cls, cluster: Cluster, workers: Sequence[int]) -> Groups:
        """Any workers of a cluster, while nobody else talks; as in `first`, nodes with fewer members pass on as much.

        >>> cluster = Cluster.named("a100_4nic", gpus=16)
        >>> one, few, whole = (Groups.of(cluster, ids) for ids in ((3, 5), (0, 1, 9), range(16)))
        >>> [int(groups.nodes) for groups in (one, few, whole)], float(whole.load), float(few.load)
        ([1, 2, 2], 0.25, 1.0)
        """
        cluster.workers(max(workers) + 1)
        ids, behind = np.asarray(workers), -(-cluster.local // cluster.nics)
        counts = np.bincount(ids // cluster.local)
        counts = counts[counts > 0]
        inside, links = counts.max(), cluster.network.longest_path(len(counts), cluster.nics)
        load = np.minimum(inside, -(-inside * behind // counts.min())) / inside
        size = counts.sum()
        return cls._of(cluster, size, inside, load, links, lambda under: [(np.bincount(ids // under).max(),) * 2])

    @classmethod
    def strided(cls, cluster: Cluster, size: Numbers | int, stride: Numbers | int) -> Groups:
        """Groups of one worker every `stride` workers that fill the cluster from its first GPU on, all talking at once.

        Three a group on nodes of eight: the third group has two members in the first node and one in the second, and
        groups are priced as the one with the fewest members in a node.

        >>> cluster = Cluster.named("a100_selene", gpus=24)
        >>> Groups.strided(cluster, np.array([8, 3, 3]), np.array([1, 8, 1])).inside.tolist()
        [8, 1, 1]
        """
        n, fill = np.asarray(size), np.asarray(size * stride)
        inside = np.clip(np.gcd(fill, cluster.local) // stride, 1, n)

        def under(workers: int) -> list[tuple[Numbers, Numbers | int]]:
            """What is whole, and halves of two groups where switches end in the middle of groups: both leave it."""
            filled = np.minimum(fill, workers)
            halves = (workers % fill > 0) & (fill % workers > 0) & (fill < cluster.gpus)
            return [(n, workers), (filled / (stride * (1 + halves)), np.where(halves, filled, workers))]

        return cls.equal(cluster, n, inside, under)

    @classmethod
    def equal(cls, cluster: Cluster, size: Numbers, inside: Numbers, under: Under | None = None) -> Groups:
        """Groups with so many members in each node, which fill the nodes and all talk at once; unless `under` says how
        many there are under a switch, it has no more than a node, or everything.
        """
        n, g, behind = np.asarray(size), np.asarray(inside), -(-cluster.local // cluster.nics)
        links = cluster.network.longest_path(cluster.nodes, cluster.nics)
        under = under or (lambda workers: [(n if workers == cluster.gpus else g, workers)])
        return cls._of(cluster, n, g, behind / g, links, under)

    @classmethod
    def _of(cls, cluster: Cluster, size: Numbers, inside: Numbers, load: Numbers, links: Any, under: Under) -> Groups:
        network, local, nics = cluster.network, cluster.local, cluster.nics
        hops = float(np.max(links)) * network.hop if np.size(links) else 0.0
        inter = replace(cluster.inter, latency=cluster.inter.latency + hops)
        switches = []
        for nodes, uplinks in network.thin(nics):
            used = uplinks * min(1, local / nics) * load * inside
            for members, talk in under(min(max(1, int(nodes * local)), cluster.gpus)):
                switches.append((np.maximum(members, inside), talk / used))
        rails = np.minimum(inside, nics) if isinstance(network, Rails) and not network.pxn else 1
        return cls(size, inside, load, -(-local // nics), cluster.intra, inter, switches, rails)

    def crowding(self, leaving: Callable[[Numbers], Numbers]) -> Numbers | float:
        """Bytes over the busiest link of the network for each byte through the busiest NIC, 1 or more.

        Parameters
        ----------
        leaving : share of what leaves the nodes under a switch that leaves the switch too, by members under it.
        """
        most: Numbers | float = 1.0
        for members, taper in self.switches:
            most = np.maximum(most, taper * leaving(members))
        return most

    @property
    def onward(self) -> Numbers | float:
        """`crowding` if each member sends to the same one of the next node, as rings do: of the nodes under a switch,
        what the last one sends leaves it.
        """
        return self.crowding(lambda members: (self.size > members) * self.inside / members)

    @property
    def to_any(self) -> Numbers | float:
        """`crowding` if each member sends as much to each of the others."""
        others = np.maximum(self.size - self.inside, 1)
        return self.crowding(lambda members: 1 - (members - self.inside) / (self.rails * others))

    @property
    def to_far(self) -> Numbers | float:
        """`crowding` if each member sends to one that is as far away as any."""
        return self.crowding(lambda members: self.size > np.where(self.rails > 1, self.inside, members))

    @cached_property
    def nodes(self) -> Numbers:
        """m, the nodes that a group has members in."""
        return np.ceil(self.size / self.inside)

    @cached_property
    def crossing(self) -> Numbers:
        """Whether a group has members in several nodes."""
        return np.asarray(self.size > self.inside)

    @cached_property
    def any_crosses(self) -> bool:
        """Whether any group does."""
        return bool(self.crossing.any())
