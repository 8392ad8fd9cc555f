"""Every message of the algorithms of an all-reduce, one by one: what formulas of `cluster.collectives` must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from commeff.cluster import Cluster
from commeff.cluster.network import Ports, Sizes
from commeff.cluster.simulation import exchange


def rings(cluster: Cluster, n: int) -> tuple[Ports, Ports]:
    """Senders and receivers of g rings, which enter and leave each node by another of its g members.

    >>> senders, receivers = rings(Cluster.named("a100_selene", gpus=16).with_gpus(16), 16)
    >>> receivers[senders == 7][:2].tolist()                      # last of the first ring, which goes on to worker 8
    [8, 0]
    """
    workers = cluster.workers(n)
    if n <= cluster.local:
        return workers, np.roll(workers, -1)
    nodes = [workers[cluster.node_of(workers) == node] for node in range(-(-n // cluster.per_node))]
    most = len(nodes[0])
    orders = [np.concatenate([np.roll(node, -(entry * len(node) // most)) for node in nodes]) for entry in range(most)]
    return np.concatenate(orders), np.concatenate([np.roll(order, -1) for order in orders])


def ring(cluster: Cluster, n: int, size: float) -> float:
    """`collectives.ring`: 2 (n-1) rounds of S/n to the next one of each ring, which share the bytes."""
    senders, receivers = rings(cluster, n)
    return exchange(cluster, senders, receivers, size / n * n / len(senders), 2 * (n - 1))


def to_server(cluster: Cluster, n: int, size: float, shards: int = 1) -> float:
    """`collectives.to_server`: every worker sends S/k to each of k shards, which sit on k of the workers.

    The way back takes as long: the same messages, turned round.
    """
    workers = cluster.workers(n)
    if not 1 <= shards <= n:
        raise ValueError(f"shards must be 1 to the {n} workers, got {shards}: each sits on a worker")
    owners = np.arange(shards) * n // shards
    return exchange(cluster, np.repeat(workers, shards), np.tile(owners, n), size / shards)


def all_to_all(cluster: Cluster, n: int, size: float) -> float:
    """`collectives.all_to_all`: every worker sends S/n to every other."""
    workers = cluster.workers(n)
    return exchange(cluster, np.repeat(workers, n), np.tile(workers, n), size / n)


def one_ring(cluster: Cluster, n: int, size: float) -> float:
    """`collectives.one_ring` in the order of the workers: 2 (n-1) rounds of S/n to the next one."""
    workers = cluster.workers(n)
    return exchange(cluster, workers, np.roll(workers, -1), size / n, 2 * (n - 1))


def all_gather(cluster: Cluster, n: int, messages: Sizes | float) -> float:
    """An all-gather of messages of any lengths along one ring: n-1 rounds, in each of which a worker passes on the
    message that it got in the round before.
    """
    workers, own = cluster.workers(n), np.broadcast_to(np.asarray(messages, dtype=np.float64), n)
    return sum(exchange(cluster, workers, np.roll(workers, -1), np.roll(own, away)) for away in range(n - 1))


def halving_doubling(cluster: Cluster, n: int, size: float) -> float:
    """`collectives.halving_doubling`: partners at distance n/2 exchange S/2, at n/4 S/4, ..., and back."""
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
    """`collectives.binomial_tree`: at distance 1, 2, 4, ... the right worker of each pair sends S to the left and back.
    First in each node, then among the first workers of the nodes.
    """
    workers, seconds = cluster.workers(n), 0.0
    for step, count in ((1, cluster.local), (cluster.local, -(-n // cluster.local))):
        distance = 1
        while distance < min(count, n):
            place = workers // step % count if step == 1 else workers // step
            children = workers[(place % (2 * distance) == distance) & (workers % step == 0)]
            seconds += exchange(cluster, children, children - distance * step, size)
            seconds += exchange(cluster, children - distance * step, children, size)
            distance *= 2
    return seconds


def parents(n: int) -> Ports:
    """(n,) above whom each worker hangs in NCCL's binary tree: in order, all levels full but the way to worker 0, which
    is the root (-1) and has one child.

    >>> parents(8).tolist()
    [-1, 2, 4, 2, 0, 6, 4, 6]
    """
    workers = np.arange(n)
    bit = workers & -workers
    above = (workers ^ bit) | (bit << 1)
    above = np.where(above >= n, workers ^ bit, above)
    above[:1] = -1
    return above


def double_tree(n: int) -> tuple[Ports, Ports, int]:
    """Children and parents of two trees in which no worker but one is inside both, and their depth.

    The second is the first in the mirror, or shifted by one if n is odd (Sanders, Speck, Träff, 2009; NCCL).

    >>> children, above, depth = double_tree(6)
    >>> len(children), depth, np.bincount(above).max()
    (10, 3, np.int64(2))
    """
    above = parents(n)
    children = np.arange(1, n)
    turned = (lambda worker: n - 1 - worker) if n % 2 == 0 else (lambda worker: (worker + 1) % n)
    depth, top = 0, np.arange(n)
    while (top >= 0).any():
        top, depth = np.where(top > 0, above[top], -1), depth + 1
    both = np.concatenate([children, turned(children)])
    return both, np.concatenate([above[children], turned(above[children])]), depth - 1


def tree(cluster: Cluster, n: int, size: float) -> float:
    """`collectives.tree` of full nodes, or inside one: g pairs of trees, pair k between the members k of the nodes and
    along chains that begin there, all messages under way at once, and the latency of the longest way up and down.
    """
    g = min(n, cluster.local)
    nodes, entry = n // g, np.arange(g)
    if n % g:
        raise ValueError(f"workers in a simulated tree must fill nodes of {g}, got {n}; take a multiple, or a ring")
    children, above, depth = double_tree(nodes)
    own = np.arange(nodes)[:, None, None] * g
    behind, before = ((own + (entry[:, None] + places) % g).ravel() for places in (np.arange(1, g), np.arange(g - 1)))
    leaves, inner = ((ends[:, None] * g + entry).ravel() for ends in (children, above))
    sizes = np.concatenate([np.full(behind.size, size / g), np.full(leaves.size, size / g / 2)])
    low, high = np.concatenate([behind, leaves]), np.concatenate([before, inner])
    instant = replace(cluster, intra=replace(cluster.intra, latency=0.0), inter=replace(cluster.inter, latency=0.0))
    moved = exchange(instant, low, high, sizes) + exchange(instant, high, low, sizes)
    moved -= 2 * exchange(instant, low, high, 0.0)  # the hops, which belong to the latency
    steps = (g - 1) * exchange(cluster, behind, before, 0.0) + depth * exchange(cluster, leaves, inner, 0.0)
    return moved + 2 * steps


def hierarchical(cluster: Cluster, n: int, size: float) -> float:
    """`collectives.hierarchical`. In a node that is not full each member does the work of several of the g members of
    others, neighbours in the ring.
    """
    local = min(n, cluster.local)
    nodes, roles = -(-n // local), np.arange(-(-n // local) * local)
    node, place = roles // local, roles % local
    members = np.minimum(local, n - node * local)
    hosts = node * local + place * members // local
    beside = hosts[node * local + (place + 1) % local]
    inside = exchange(cluster, hosts, beside, size / local, 2 * (local - 1))
    return inside + exchange(cluster, hosts, np.roll(hosts, -local), size / local / nodes, 2 * (nodes - 1))


ALL_REDUCE: dict[str, Callable[[Cluster, int, float], float]] = {
    "ring": ring,
    "tree": tree,
    "hierarchical": hierarchical,
    "one_ring": one_ring,
    "binomial_tree": binomial_tree,
    "halving_doubling": halving_doubling,
}
