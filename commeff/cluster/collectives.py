"""The one price of a message: seconds of collectives and exchanges, for groups given by size and placement.

Every formula is vectorised over `Groups` and sizes. S bytes, n workers in m nodes of g members each; alpha and B are
latency and rate of the link inside a node, alpha' and B' of one NIC, lambda is `Groups.load`: bytes through the busiest
NIC for each byte that a group passes from node to node. Links are full duplex, and a `Link` has its burst once in each
operation. `simulation` sends every message by itself and is the law that these formulas obey.

What a library would choose is called "auto" and is the cheapest of several algorithms, as NCCL's tuner chooses from its
own model (src/graph/tuning.cc): of ring, tree and hierarchical for an all-reduce, of ring and hierarchical for a
reduce-scatter and an all-gather. Whoever knows the algorithm names it: gloo's ring is "one_ring".

>>> from commeff.cluster.cluster import Cluster
>>> groups = Groups.first(Cluster.named("a100_4nic", gpus=64), 64)
>>> for algorithm in ALL_REDUCE:
...     print(f"{algorithm:17} {1e3 * float(all_reduce(groups, 1e8, algorithm)):6.3f} ms")
ring               2.807 ms
tree               2.146 ms
hierarchical       2.678 ms
one_ring           8.959 ms
binomial_tree     27.601 ms
halving_doubling  14.724 ms
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np

from commeff import require
from commeff.cluster.groups import Groups, Numbers
from commeff.cluster.hardware import Link

Bytes = Numbers | float
Lines = Sequence[tuple[Bytes, Numbers]]


class Moves(NamedTuple):
    """The load of an operation on S bytes on a group's links. With  t = rounds x alpha + bytes S / B  inside a node
    and  t'  on the NICs it takes t + t' if the one follows the other; if both go on at once the larger of the two,
    or, pipelined, all the rounds and the larger of the two times that the bytes take.

    Attributes
    ----------
    rounds, outer_rounds : messages that wait for each other, inside a node and on the NICs.
    bytes, outer_bytes : through the busiest GPU and the busiest NIC, for each of the S bytes.
    order : "after", "at once" or "pipelined".
    """

    rounds: Numbers
    bytes: Numbers
    outer_rounds: Numbers
    outer_bytes: Numbers
    order: str = "after"


def lines(groups: Groups, moves: Moves) -> Lines:
    """What the moves of an operation take, as seconds, and seconds for each byte, of lines of which the highest holds.

    A link without a burst has one line, and one with a burst two: until it is over nothing but latencies is felt.
    """
    inside, outside = burst_lines(groups.intra, moves.bytes), burst_lines(groups.inter, moves.outer_bytes)
    first, second = moves.rounds * groups.intra.latency, moves.outer_rounds * groups.inter.latency
    if not groups.any_crosses:
        return [(first + saved, slope) for saved, slope in inside]
    if moves.order == "after":
        return [(first + second + a + b, slope + other) for a, slope in inside for b, other in outside]
    if moves.order == "pipelined":
        return [(first + second + saved, slope) for saved, slope in (*inside, *outside)]
    return [(first + saved, slope) for saved, slope in inside] + [(second + saved, slope) for saved, slope in outside]


def burst_lines(link: Link, moved: Numbers) -> Lines:
    """max(0, S - burst) / rate, for bytes through a link for each of the S bytes, as lines."""
    line = (-link.burst / link.rate, moved / link.rate)
    return [line, (0.0, 0.0 * moved)] if link.burst else [line]


def longest(size: Bytes, of: Lines) -> Numbers:
    """The highest of some lines."""
    return np.asarray(reduce(np.maximum, (fixed + size * slope for fixed, slope in of)))


def ring(groups: Groups, ways: int = 2) -> Moves:
    """All-reduce by rings: reduce-scatter, then all-gather, n-1 rounds of S/n each (Patarasuk, Yuan, 2009):

        2 (n-1) max(alpha + (g-1)/g S/(n B),  alpha' + lambda S/(n B'))

    and inside one node  2 (n-1) alpha + 2 (n-1)/n S/B. The bandwidth term is flat in n, the latency term is not. One
    way is a reduce-scatter, or an all-gather.

    There is a ring for each of the g members of a node, which leaves the node by that member's NIC, each with 1/g of
    the bytes (NCCL's channels): a member passes on inside what it does not pass to the next node.
    """
    rounds = ways * (groups.size - 1)
    chunks, far = rounds / groups.size, groups.crossing
    inside = chunks * np.where(far, 1 - 1 / groups.inside, 1.0)
    outside = far * chunks * (groups.load * groups.onward)
    return Moves(rounds * (groups.inside > 1), inside, far * rounds, outside, "at once")


def one_ring(groups: Groups, ways: int = 2) -> Moves:
    """All-reduce by a single ring in the order of the workers, which leaves each node by one NIC (gloo, and ours). One
    way is a reduce-scatter, or an all-gather.
    """
    rounds = ways * (groups.size - 1)
    chunks, far = rounds / groups.size, groups.crossing
    several = groups.inside > 1
    return Moves(rounds * several, chunks * several, far * rounds, far * chunks * leaders(groups), "at once")


def tree(groups: Groups) -> Moves:
    """All-reduce up and down two complementary binary trees of nodes, chains in the nodes, all pipelined (Sanders,
    Speck, Träff, 2009; NCCL):

        2 (g-1) alpha + 2 ceil(log2 m) alpha' + max(2 (g-1)/g S/B,  2 lambda S/B')

    Inside one node that is the ring. Of two nodes each is the leaf of one tree and passes on half of S there. Up to
    eight halves of S leave the nodes under a switch of an oversubscribed network, twice as much as a node sends.
    """
    steps, twice = 2 * (groups.inside - 1), 2 * groups.inside
    crowding = groups.crowding(lambda members: (groups.size > members) * np.minimum(twice / members, 1))
    passed = np.minimum(groups.nodes - 1, 2) * groups.load * crowding
    return Moves(steps, steps / groups.inside, 2 * levels(groups.nodes), passed, "pipelined")


def binomial_tree(groups: Groups) -> Moves:
    """All-reduce up and down one binomial tree, in each node and then among one member of each, whole messages at a
    time (Thakur et al., 2005):  2 ceil(log2 g) (alpha + S/B) + 2 ceil(log2 m) (alpha' + S/B').
    """
    inside, outside = 2 * levels(groups.inside), 2 * levels(groups.nodes)
    return Moves(inside, inside, outside, outside * leaders(groups))


def halving_doubling(groups: Groups) -> Moves:
    """All-reduce by recursive halving, then doubling:  2 log2(n) alpha + 2 (n-1)/n S/B  where nothing is shared (Thakur
    et al., 2005; Rabenseifner, 2004).

    Partners at distance d < n exchange d/n of S, inside a node or each over its share of a NIC. If n is no power of
    two, the workers beyond one fold in before and get the sum after, whole vectors. In nodes of g members where g is no
    power of two pairs and nodes are not aligned, and only `simulation` knows what meets where.
    """
    log = np.floor(np.log2(groups.size))
    power = 2.0**log
    beyond = groups.size - power
    far = groups.crossing & (power >= groups.inside)
    folds = 2.0 * (beyond > 0)
    rounds, moved = folds * ~far, folds * ~far
    outer_rounds, outer_moved = folds * far, folds * far * np.minimum(groups.crowd, beyond) * groups.to_far
    for level in range(int(np.max(log, initial=0))):
        part, span = np.where(level < log, 2.0**level / power, 0.0), 2.0 ** (level + 1)
        across = groups.crossing & (groups.inside % span != 0)
        crowd = groups.crowd * groups.crowding(lambda members: members % span != 0)  # noqa: B023 - called at once
        rounds, moved = rounds + 2 * (part > 0) * ~across, moved + 2 * part * ~across
        outer_rounds = outer_rounds + 2 * (part > 0) * across
        outer_moved = outer_moved + 2 * part * crowd * across
    return Moves(rounds, moved, outer_rounds, outer_moved)


def hierarchical(groups: Groups, ways: int = 2) -> Moves:
    """All-reduce by rings in each node, and by each member over its own NIC among the nodes (Goyal et al., 2017):

        2 (g-1) (alpha + S/(g B))  +  2 (m-1) (alpha' + lambda S/(m B')).

    The members of a node that is not full do the work of g. Inside one node it is the ring. One way is a
    reduce-scatter, or an all-gather.
    """
    g, m = groups.inside, groups.nodes
    inside, outside = ways * (g - 1), ways * (m - 1)
    return Moves(inside, inside / g, outside, outside / m * groups.load * groups.onward)


ALL_REDUCE: dict[str, Callable[[Groups], Moves]] = {
    "ring": ring,
    "tree": tree,
    "hierarchical": hierarchical,
    "one_ring": one_ring,
    "binomial_tree": binomial_tree,
    "halving_doubling": halving_doubling,
}
REDUCE_SCATTER: dict[str, Callable[[Groups], Moves]] = {
    "ring": partial(ring, ways=1),
    "hierarchical": partial(hierarchical, ways=1),
    "one_ring": partial(one_ring, ways=1),
}
LIBRARY = ("ring", "tree", "hierarchical")  # what "auto" chooses from


def all_reduce(groups: Groups, size: Bytes, algorithm: str = "auto") -> Numbers:
    """Seconds of the dense average of n vectors of S bytes.

    Parameters
    ----------
    groups : who; alone a worker needs no time.
    size : S, bytes of each vector.
    algorithm : one of `ALL_REDUCE`, or "auto", the cheapest of ring, tree and hierarchical.
    """
    return cheapest(ALL_REDUCE, groups, size, algorithm)


def reduce_scatter(groups: Groups, size: Bytes, algorithm: str = "auto") -> Numbers:
    """Seconds until each of n workers has the sum of its n-th part of n vectors of S bytes.

    Parameters
    ----------
    groups, size : as in `all_reduce`.
    algorithm : "ring", "hierarchical", "one_ring" or "auto", the cheaper of the first two.
    """
    return cheapest(REDUCE_SCATTER, groups, size, algorithm)


def all_gather(groups: Groups, message: Bytes, algorithm: str = "auto") -> Numbers:
    """Seconds until every worker has the messages of all, a reduce-scatter turned round: with a ring, n-1 rounds.

    Parameters
    ----------
    message : bytes of the longest message; the others wait for it in every round, as if padded.
    """
    return reduce_scatter(groups, groups.size * message, algorithm)


def to_server(groups: Groups, size: Bytes, shards: Numbers | int = 1) -> Numbers:
    """Seconds of all workers sending S/k to each of k shards of a server, which sit evenly on k of the workers (Li et
    al., 2014):  alpha + (n-1) S/(k B)  where nothing is shared. The way back takes as long.

    Parameters
    ----------
    groups, size : as in `all_reduce`.
    shards : k, 1 to n.
    """
    n, g, k = groups.size, groups.inside, np.asarray(shards)
    if np.any((k < 1) | (k > n)):
        raise ValueError(f"shards must be 1 to the {int(np.min(n))} workers, got {shards}: each sits on a worker")
    received = np.ceil(groups.crowd * k / n) * (n - g)
    sent = groups.crowd * (k - np.floor(k / groups.nodes))
    outside = groups.crossing * np.maximum(received, sent * groups.to_any) / k
    return longest(size, lines(groups, Moves(1.0 * (g > 1), (g - 1) / k, 1.0 * groups.crossing, outside, "at once")))


def server(groups: Groups, size: Bytes, shards: Numbers | int = 1) -> Numbers:
    """`to_server`, and back."""
    return 2 * to_server(groups, size, shards)


def neighbours(groups: Groups, size: Bytes, degree: Numbers | int = 1) -> Numbers:
    """Seconds of every worker sending S bytes to `degree` others, at most all n-1, at once (Lian et al., 2017):

        alpha + degree S/B

    in other nodes if the group is in several, where all of a node share its NICs, and under other switches, where the
    network may be oversubscribed. Gossip over a graph of your own is priced by the graph: `simulation.gossip`.

    Parameters
    ----------
    groups : who.
    size : S, bytes of each message.
    degree : to how many others each worker sends.
    """
    return _sent(groups, size, np.minimum(degree, groups.size - 1), groups.to_far)


def all_to_all(groups: Groups, size: Bytes) -> Numbers:
    """Seconds until each of n workers has the n-th part of the S bytes of every other, sent one by one (Thakur et al.,
    2005):  (n-1) (alpha + S/(n B))  where nothing is shared. Messages to other nodes, n-g from each worker, cross the
    network while those to the own node travel in it.

    >>> from commeff.cluster.cluster import Cluster
    >>> groups = Groups.first(Cluster.named("a100_4nic", gpus=64), np.array([1, 8, 64]))
    >>> [round(1e3 * seconds, 3) for seconds in all_to_all(groups, 1e8).tolist()]
    [0.0, 0.386, 7.628]
    """
    n, g = groups.size, groups.inside
    near, far = g - 1, n - g
    outside = far / n * g * groups.load * groups.to_any
    return longest(size, lines(groups, Moves(1.0 * near, near / n, 1.0 * far, outside, "at once")))


def point_to_point(groups: Groups, size: Bytes) -> Numbers:
    """Seconds of a message to the next worker in another node, if there is one, while everybody sends one: alpha + S/B
    (Hockney, 1994).
    """
    return _sent(groups, size, np.minimum(1, groups.size - 1), groups.onward)


def _sent(groups: Groups, size: Bytes, others: Numbers, crowding: Numbers | float) -> Numbers:
    far = groups.crossing
    outside = far * others * (groups.crowd * crowding)
    return longest(size, lines(groups, Moves((others > 0) & ~far, others * ~far, (others > 0) & far, outside)))


def levels(count: Numbers) -> Numbers:
    """The levels of a binary tree: ceil(log2 n).

    >>> levels(np.array([1, 2, 3, 8, 9])).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    return np.ceil(np.log2(count))


def leaders(groups: Groups) -> Numbers:
    """Groups behind the busiest NIC, or uplink of a switch, if one member of each in every node sends, and they are
    spread over the NICs evenly.
    """
    return np.maximum(np.ceil(groups.crowd / groups.inside), groups.load * groups.onward)


def cheapest(kinds: Mapping[str, Callable[[Groups], Moves]], groups: Groups, size: Bytes, algorithm: str) -> Numbers:
    """By the named algorithm, or the least of those that a library chooses from."""
    if algorithm == "auto":
        names = LIBRARY if groups.any_crosses else LIBRARY[:1]  # inside a node all of them are the ring
        return reduce(np.minimum, (price(groups, size, kinds[name]) for name in names if name in kinds))
    require.one_of(("auto", *kinds), algorithm=algorithm)
    return price(groups, size, kinds[algorithm])


def price(groups: Groups, size: Bytes, kind: Callable[[Groups], Moves]) -> Numbers:
    """Seconds of a kind of operation, whose lines are worked out once for each `Groups`."""
    if kind not in groups.cache:
        groups.cache[kind] = lines(groups, kind(groups))
    return longest(size, groups.cache[kind])
