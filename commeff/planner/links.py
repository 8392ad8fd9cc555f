"""Collectives for many groups at once: who shares a node, who shares a NIC, and the seconds that follow.

The same alpha-beta formulas as `commeff.cluster.costs`, over arrays of group sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commeff.cluster import Cluster
from commeff.planner.policies import Numbers


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of `size` ranks that talk at once.

    Parameters
    ----------
    inside : members in one node, in the group that has the fewest.
    bandwidth : bytes/s of a ring through the group: the slower of the link in the node and the NICs. The GPUs of a
        node share its NICs evenly, and a group with g members in the node rings through the shares of all g (NCCL's
        several rings).
    latency : of one step between members.
    alone : bytes/s of one rank that sends to another node while all others of its node do.
    """

    size: Numbers
    inside: Numbers
    bandwidth: Numbers
    latency: Numbers
    alone: Numbers

    @classmethod
    def of(cls, cluster: Cluster, size: Numbers, stride: Numbers) -> Groups:
        """One rank every `stride` ranks, the groups filling the cluster from its first rank on.

        Three ranks a group on nodes of eight: the third group has two ranks in the first node and one in the second.

        >>> groups = Groups.of(Cluster.named("a100_4nic", gpus=24), np.array([8, 3, 3]), np.array([1, 8, 1]))
        >>> groups.inside, groups.bandwidth[0] / groups.bandwidth[1] > 10
        (array([8, 1, 1]), np.True_)
        """
        return cls.placed(cluster, size, np.clip(np.gcd(size * stride, cluster.local) // stride, 1, size))

    @classmethod
    def placed(cls, cluster: Cluster, size: Numbers, inside: Numbers) -> Groups:
        """With so many members in a node."""
        crossing = size > inside
        intra, share = cluster.intra.bandwidth, cluster.inter_share.bandwidth
        return cls(
            size=size,
            inside=inside,
            bandwidth=np.where(crossing, np.minimum(intra, inside * share), intra),
            latency=np.where(crossing, cluster.inter.latency, cluster.intra.latency),
            alone=np.where(crossing, share, intra),
        )

    def all_reduce(self, size: Numbers) -> Numbers:
        """Of `size` bytes: 2 (n-1)/n S/B + 2 ceil(log2 n) alpha, the bytes of a ring at the latency of a tree."""
        return 2 * self.reduce_scatter(size)

    def reduce_scatter(self, size: Numbers) -> Numbers:
        """Half an all-reduce; an all-gather of `size` bytes in all is the same."""
        n = self.size
        return (n - 1) / n * size / self.bandwidth + np.ceil(np.log2(n)) * self.latency

    def gather(self, size: Numbers) -> Numbers:
        """Every rank gets the messages of all others, `size` bytes each: (n-1) S/B."""
        return self.reduce_scatter(self.size * size)

    def neighbours(self, size: Numbers, degree: Numbers | int = 1, oversubscription: float = 1.0) -> Numbers:
        """Every rank sends `size` bytes to `degree` others: degree S/B + alpha, over links that hops far away share."""
        rate = np.where(self.size > self.inside, self.alone / oversubscription, self.alone)
        return (self.size > 1) * (np.minimum(degree, self.size - 1) * size / rate + self.latency)
