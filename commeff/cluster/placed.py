"""Seconds of communication among workers where they sit: messages that share a GPU, a NIC or a switch's uplink wait.

Worker i sits on GPU i. Messages inside a node use its GPUs' links, the others its NICs and the network. A round of
messages takes

    max( latency + bytes through the busiest GPU / intra bandwidth,
         latency + links x hop + bytes over the busiest link / inter bandwidth ),

and a collective is its rounds. On SimGrid's figures for crossbars and fat trees this is exact (tests/commeff).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from commeff.cluster.costs import tree as tree_formula
from commeff.cluster.hardware import Cluster, Link
from commeff.cluster.network import Ports, Sizes, busiest
from commeff.topologies import MixingMatrix


def exchange(cluster: Cluster, sources: Ports, destinations: Ports, sizes: Sizes | float, rounds: float = 1) -> float:
    """Seconds until all messages have arrived, when each worker sends its own at once.

    Parameters
    ----------
    sources, destinations : (messages,) workers. A message to oneself costs nothing.
    sizes : bytes of each, or of all alike.
    rounds : how often this happens, one after the other; a link's burst is available once.

    >>> cluster = Cluster.named("v100_25g", gpus=16)                  # two nodes, one NIC each, eight GPUs behind it
    >>> first, second = np.arange(8), np.arange(8, 16)
    >>> round(exchange(cluster, first, second, 1e6) / exchange(cluster, first[:1], second[:1], 1e6), 1)
    7.4
    """
    each = np.broadcast_to(np.asarray(sizes, dtype=np.float64), sources.shape)
    away = cluster.node_of(sources) != cluster.node_of(destinations)
    inside = ~away & (sources != destinations)
    slowest = 0.0
    if inside.any():
        here, there, size = sources[inside], destinations[inside], each[inside]
        load = max(busiest(here, size), busiest(there, size))
        slowest = cluster.intra.seconds(rounds * load, rounds)
    if away.any():
        ports = cluster.port_of(sources[away]), cluster.port_of(destinations[away])
        load, links = cluster.network.traffic(*ports, each[away], cluster.nics)
        hops = rounds * links * cluster.network.link_seconds
        slowest = max(slowest, cluster.inter.seconds(rounds * load, rounds) + hops)
    return slowest


def slowest_link(cluster: Cluster, n: int) -> Link:
    """The link that n workers have between any two of them at the least: inside a node if they share it, else a NIC."""
    if n <= cluster.per_node:
        return cluster.intra
    inter, intra = cluster.inter, cluster.intra
    return Link(min(inter.bandwidth, intra.bandwidth), max(inter.latency, intra.latency), inter.burst)


def neighbours(cluster: Cluster, n: int) -> tuple[Ports, Ports]:
    """Everyone and the next one, in the order of workers, so that a ring leaves each node once."""
    workers = cluster.workers(n)
    return workers, np.roll(workers, -1)


def ring(cluster: Cluster, n: int, size: float) -> float:
    """`costs.ring` in the order of the workers: 2 (n-1) rounds of S/n to the next one."""
    return exchange(cluster, *neighbours(cluster, n), size / n, 2 * (n - 1)) if n > 1 else 0.0


def all_gather(cluster: Cluster, n: int, message: float) -> float:
    """`costs.all_gather` in the order of the workers: n-1 rounds of m to the next one."""
    return exchange(cluster, *neighbours(cluster, n), message, n - 1) if n > 1 else 0.0


def halving_doubling(cluster: Cluster, n: int, size: float) -> float:
    """`costs.halving_doubling`: partners at distance n/2 exchange S/2, at n/4 S/4, ..., and back."""
    workers = cluster.workers(n)
    power = 2 ** int(np.log2(n))
    seconds = exchange(cluster, workers[power:], workers[: n - power], size)
    seconds += exchange(cluster, workers[: n - power], workers[power:], size)
    distance, part = power // 2, size / 2
    while distance:
        seconds += exchange(cluster, workers[:power], workers[:power] ^ distance, part, rounds=2)
        distance, part = distance // 2, part / 2
    return seconds


def binomial_tree(cluster: Cluster, n: int, size: float) -> float:
    """`costs.binomial_tree`: at distance 1, 2, 4, ... the right worker of each pair sends S to the left, and back."""
    workers, distance, seconds = cluster.workers(n), 1, 0.0
    while distance < n:
        children = workers[distance :: 2 * distance]
        seconds += exchange(cluster, children, children - distance, size)
        seconds += exchange(cluster, children - distance, children, size)
        distance *= 2
    return seconds


def tree(cluster: Cluster, n: int, size: float) -> float:
    """`costs.tree` over the slowest link between the workers."""
    return tree_formula(size, n, slowest_link(cluster, n))


def hierarchical(cluster: Cluster, n: int, size: float) -> float:
    """`costs.hierarchical` over full nodes; inside one node, its first step and its last."""
    local = min(n, cluster.per_node)
    if n % local:
        raise ValueError(
            f"a hierarchical all-reduce of {n} workers in nodes of {local} was asked for; "
            f"it needs full nodes: take a multiple of {local}, or a ring"
        )
    workers, nodes = cluster.workers(n), n // local
    beside = workers // local * local + (workers + 1) % local
    inside = exchange(cluster, workers, beside, size / local, 2 * (local - 1))
    return inside + exchange(cluster, workers, (workers + local) % n, size / n, 2 * (nodes - 1))


def to_server(cluster: Cluster, n: int, size: float, shards: int = 1) -> float:
    """Every worker sends S/k to each of k shards, which sit on k of the workers: one way of `costs.server`.

    The way back takes as long: the same messages, turned round.
    """
    workers = cluster.workers(n)
    if not 1 <= shards <= n:
        raise ValueError(f"{shards} server shards on {n} workers were asked for; take 1 to {n}")
    owners = np.arange(shards) * n // shards
    return exchange(cluster, np.repeat(workers, shards), np.tile(owners, n), size / shards)


def gossip(cluster: Cluster, matrix: MixingMatrix, size: float) -> float:
    """One round of gossip: whoever i hears from sends it S. `costs.gossip` where no link is shared.

    >>> from commeff import topologies
    >>> flat = Cluster.named("ethernet_1g", gpus=8)
    >>> both = topologies.ring(8), topologies.one_peer_exponential(8)
    >>> two, one = (gossip(flat, topology.at(0), 1e7) for topology in both)
    >>> round(two / one, 2)
    2.0
    """
    if matrix.n > cluster.gpus:
        raise ValueError(
            f"gossip of {matrix.n} workers on {cluster.gpus} GPUs of {cluster.name} was asked for; take more"
        )
    messages = matrix.off_diagonal.tocoo()
    return exchange(cluster, messages.col.astype(np.int64), messages.row.astype(np.int64), size)


ALL_REDUCE: dict[str, Callable[[Cluster, int, float], float]] = {
    "ring": ring,
    "tree": tree,
    "binomial_tree": binomial_tree,
    "halving_doubling": halving_doubling,
    "hierarchical": hierarchical,
}


def all_reduce(cluster: Cluster, n: int, size: float, algorithm: str = "ring") -> float:
    """The dense average of n vectors of S bytes, by the named algorithm."""
    if algorithm not in ALL_REDUCE:
        raise ValueError(f"there is no all-reduce {algorithm!r}; choose of {' '.join(ALL_REDUCE)}")
    cluster.workers(n)
    return ALL_REDUCE[algorithm](cluster, n, size) if n > 1 else 0.0
