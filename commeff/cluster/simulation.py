"""Every message on its links: messages that share a GPU, a NIC or a switch's uplink wait. The law of `collectives`.

Worker i sits on GPU i. Messages inside a node use its GPUs' links, the others its NICs and the network. A round of
messages takes

    max( latency + bytes through the busiest GPU / intra bandwidth,
         latency + links x hop + bytes over the busiest link / inter bandwidth ),

and a collective is its rounds. On SimGrid's figures for crossbars and fat trees this is exact (tests/commeff). It also
prices what no formula knows: gossip over any graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commeff.cluster.cluster import Cluster
from commeff.cluster.groups import Numbers
from commeff.cluster.network import Ports, Sizes, busiest
from commeff.topologies import MixingMatrix


def exchange(cluster: Cluster, sources: Ports, destinations: Ports, sizes: Sizes | float, rounds: float = 1) -> float:
    """Seconds until all messages have arrived, when each worker sends its own at once.

    Parameters
    ----------
    sources, destinations : (messages,) workers. A message to oneself costs nothing.
    sizes : bytes of each, or of all alike.
    rounds : how often this happens, one after the other; a link's burst is available once in them.

    >>> cluster = Cluster.named("v100_25g", gpus=16)                  # two nodes, one NIC each, eight GPUs behind it
    >>> first, second = np.arange(8), np.arange(8, 16)
    >>> round(exchange(cluster, first, second, 1e6) / exchange(cluster, first[:1], second[:1], 1e6), 1)
    7.9
    """
    return float(routes(cluster, sources, destinations, sizes).seconds(cluster, rounds=rounds))


class Routes(NamedTuple):
    """What messages that are sent at once load the links with.

    Attributes
    ----------
    inside : bytes through the busiest GPU, of messages inside a node; None if there are none.
    outside, links : bytes over the busiest link between nodes, and links on the longest path; None if there are none.
    """

    inside: float | None
    outside: float | None
    links: float

    def seconds(self, cluster: Cluster, times: Numbers | float = 1.0, rounds: float = 1) -> Numbers:
        """Until all have arrived, if every message is so many times as long, `rounds` one after the other."""
        slowest = np.zeros_like(times, dtype=np.float64)
        if self.inside is not None:
            slowest = cluster.intra.seconds(rounds * (self.inside * times), rounds)
        if self.outside is not None:
            hops = rounds * self.links * cluster.network.hop
            slowest = np.maximum(slowest, cluster.inter.seconds(rounds * (self.outside * times), rounds) + hops)
        return slowest


def routes(cluster: Cluster, sources: Ports, destinations: Ports, sizes: Sizes | float = 1.0) -> Routes:
    """The links that messages share. See `exchange`."""
    bytes_each = np.broadcast_to(np.asarray(sizes, dtype=np.float64), sources.shape)
    away = cluster.node_of(sources) != cluster.node_of(destinations)
    near = ~away & (sources != destinations)
    inside, outside, links = None, None, 0.0
    if near.any():
        inside = max(busiest(sources[near], bytes_each[near]), busiest(destinations[near], bytes_each[near]))
    if away.any():
        ports = cluster.port_of(sources[away]), cluster.port_of(destinations[away])
        outside, links = cluster.network.traffic(*ports, bytes_each[away], cluster.nics)
    return Routes(inside, outside, links)


def gossip(cluster: Cluster, matrix: MixingMatrix, size: float) -> float:
    """One round of gossip: whoever i hears from sends it S bytes.

    >>> from commeff import topologies
    >>> flat = Cluster.named("ethernet_1g", gpus=8)
    >>> both = topologies.ring(8), topologies.one_peer_exponential(8)
    >>> two, one = (gossip(flat, topology.at(0), 1e7) for topology in both)
    >>> round(two / one, 2)
    2.0
    """
    cluster.workers(matrix.n)
    messages = matrix.off_diagonal.tocoo()
    return exchange(cluster, messages.col.astype(np.int64), messages.row.astype(np.int64), size)
