"""Seconds of collectives on one kind of link: the alpha-beta formulas, one function each.

S bytes, n workers, a link of latency alpha and bandwidth B (`Link.seconds` adds the burst, once for each call). Every
worker has one such link of its own and they work at once. Where workers sit and what they share is the subject of
`commeff.cluster.placed`, which agrees with these formulas on a crossbar, but for bursts: it has one for each phase in
which the partners change.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from commeff.cluster.hardware import Link, positive


def check_workers(n: int) -> None:
    """Refuse fewer than one worker."""
    if n < 1:
        raise ValueError(f"a collective of {n} workers was asked for; it needs at least 1")


def point_to_point(size: float, link: Link) -> float:
    """alpha + S / B   (Hockney, 1994).

    >>> point_to_point(1e6, Link(bandwidth=1e8, latency=0.5))
    0.51
    """
    return link.seconds(size)


def ring(size: float, n: int, link: Link) -> float:
    """2 (n-1) alpha + 2 (n-1)/n S/B: reduce-scatter, then all-gather, n-1 rounds of S/n each (Patarasuk, Yuan, 2009).

    The bandwidth term is flat in n, the latency term is not.

    >>> ring(1e6, 4, Link(bandwidth=1e6, latency=0.5))
    4.5
    """
    check_workers(n)
    return link.seconds(2 * (n - 1) / n * size, 2 * (n - 1))


def halving_doubling(size: float, n: int, link: Link) -> float:
    """2 log2(n) alpha + 2 (n-1)/n S/B: recursive halving, then doubling (Thakur et al., 2005; Rabenseifner, 2004).

    If n is not a power of two, the workers beyond one fold in before and are told after: 2 (alpha + S/B) more.

    >>> halving_doubling(1e6, 4, Link(bandwidth=1e6, latency=0.5)), halving_doubling(1e6, 5, Link(1e6, 0.5))
    (3.5, 6.5)
    """
    check_workers(n)
    rounds = int(log2(n))
    power, folds = 2**rounds, 2 * (n != 2**rounds)
    return link.seconds(2 * (power - 1) / power * size + folds * size, 2 * rounds + folds)


def tree(size: float, n: int, link: Link) -> float:
    """2 log2(n) alpha + 2 S/B: reduce up and broadcast down two complementary binary trees, pipelined (Sanders, Speck,
    Träff, 2009; NCCL's double binary tree).

    >>> tree(1e6, 4, Link(bandwidth=1e6, latency=0.5)), tree(1e6, 1, Link(1e6, 0.5))
    (4.0, 0.0)
    """
    check_workers(n)
    return link.seconds(2 * size, 2 * ceil(log2(n))) if n > 1 else 0.0


def binomial_tree(size: float, n: int, link: Link) -> float:
    """2 log2(n) (alpha + S/B): reduce up and broadcast down one binomial tree, whole messages at a time (Thakur et al.,
    2005).

    >>> binomial_tree(1e6, 4, Link(bandwidth=1e6, latency=0.5))
    6.0
    """
    check_workers(n)
    rounds = 2 * ceil(log2(n))
    return link.seconds(rounds * size, rounds)


def reduce_scatter(size: float, n: int, link: Link) -> float:
    """(n-1) alpha + (n-1)/n S/B: half a ring.

    >>> reduce_scatter(1e6, 4, Link(bandwidth=1e6, latency=0.5))
    2.25
    """
    check_workers(n)
    return link.seconds((n - 1) / n * size, n - 1)


def all_gather(message: float, n: int, link: Link) -> float:
    """(n-1) alpha + (n-1) m/B for messages of m bytes: how messages that do not sum are averaged (Agarwal et al. 2022).

    >>> all_gather(1e6, 4, Link(bandwidth=1e6, latency=0.5))
    4.5
    """
    check_workers(n)
    return link.seconds((n - 1) * message, n - 1)


def server(size: float, n: int, link: Link, shards: int = 1, apart: bool = False) -> float:
    """2 (alpha + L/B), there and back, L being the bytes through the busiest link (Li et al., 2014).

    With the k shards on k of the workers, L = (n-1) S/k: a worker keeps what it is itself the server of. With machines
    of their own (`apart`), L = max(n S/k, S).

    >>> link = Link(bandwidth=1e6, latency=0.5)
    >>> server(1e6, 4, link), server(1e6, 4, link, shards=4), server(1e6, 4, link, shards=2, apart=True)
    (7.0, 2.5, 5.0)
    """
    check_workers(n)
    if shards < 1 or (shards > n and not apart):
        raise ValueError(f"{shards} server shards on {n} workers were asked for; take 1 to {n}, or apart=True")
    load = max(n * size / shards, size) if apart else (n - 1) * size / shards
    return 2 * link.seconds(load) if n > 1 or apart else 0.0


def gossip(size: float, degree: int, link: Link) -> float:
    """alpha + degree S/B: what the busiest worker sends or receives, whatever n (Lian et al., 2017).

    >>> gossip(1e6, 2, Link(bandwidth=1e6, latency=0.5)), gossip(1e6, 0, Link(1e6, 0.5))
    (2.5, 0.0)
    """
    return link.seconds(degree * size, 1) if degree else 0.0


def hierarchical(size: float, nodes: int, local: int, intra: Link, share: Link) -> float:
    """Ring reduce-scatter of S inside each node of g GPUs, ring all-reduce of S/g among the nodes by each GPU over its
    share of the NICs, ring all-gather inside   (Goyal et al., 2017):

        2 (g-1) (alpha + S/(g B))  +  2 (m-1) (alpha' + S/(g m B'))

    with `intra` = (alpha, B), `share` = (alpha', B'), m nodes.

    >>> hierarchical(1e6, 2, 4, Link(1e6, 0.0), Link(1e5, 0.0)), ring(1e6, 8, Link(1e5, 0.0))
    (4.0, 17.5)
    """
    inside = reduce_scatter(size, local, intra) + all_gather(size / local, local, intra)
    return inside + ring(size / local, nodes, share)


@dataclass(frozen=True)
class Codec:
    """What compressing costs a worker: it encodes its own vector once and decodes each message that it receives.

    Parameters
    ----------
    expansion : bytes of the vector for each byte of its message, such as 32 for signs of float32 numbers.
    encode, decode : bytes of the vector per second.

    >>> Codec(expansion=10, encode=1e9, decode=2e9).seconds(message=1e7, received=3)
    0.25
    """

    expansion: float
    encode: float
    decode: float

    def __post_init__(self) -> None:
        positive("an expansion", self.expansion, "bytes per byte")
        positive("an encoding speed", self.encode, "bytes/s")
        positive("a decoding speed", self.decode, "bytes/s")

    def seconds(self, message: float, received: float) -> float:
        """Encode one message of so many bytes, decode `received` of them."""
        vector = message * self.expansion
        return vector / self.encode + received * vector / self.decode
