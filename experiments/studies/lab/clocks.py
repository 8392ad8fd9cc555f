"""Every worker's clock where links differ: modelled seconds of a run whose workers sit behind links of their own.

`commeff.cluster.modelled` takes all links for alike. Here worker i has its own link L_i, computes for c_i, and a round
of gossip ends for it when the last of those it hears from, N_i, has been heard:

    t_i  <-  max( t_i + c_i,  max over j in N_i of  max(t_i + c_i, t_j + c_j) + l_ji ),
    l_ji  =  max( L_j for all that j sends,  L_i for all that i receives ).

A message sets out when both ends are there, as gloo does it. So a slow link costs those who use it, and whoever waits
for them later. A collective is a barrier: it begins when all are ready and goes at the pace of the slowest link, since
every part of it crosses every link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from commeff.cluster.billing import Billing, Schedule
from commeff.cluster.cluster import Cluster
from commeff.cluster.hardware import Link
from commeff.cluster.progress import Times
from commeff.profiling import Operation
from commeff.topologies import MixingMatrix


def clocks(
    sent: Schedule,
    cluster: Cluster,
    links: Sequence[Link],
    *,
    steps: int,
    compute: ArrayLike = 0.0,
    collective: str = "auto",
) -> Times:
    """(steps, n) when each worker has ended each step, all having started at 0. Nothing is hidden.

    Parameters
    ----------
    sent : a `commeff.profile`, or `billing.Recorded` rows of a ledger; in a step without operations nobody waits.
    cluster : one worker on each of its nodes, on a crossbar; its own links are not looked at.
    links : of each worker.
    steps : of the run.
    compute : seconds of a step: one number, (workers,), or (steps, workers).
    collective : see `billing.Billing`.

    >>> from commeff import topologies
    >>> from commeff.cluster.billing import Recorded
    >>> from commeff.communicator.ledger import Entry
    >>> slow, fast = Link(bandwidth=1e6, latency=0.0), Link(bandwidth=1e9, latency=0.0)
    >>> rows = [Entry(step, "", "mix", 1e6, 1e6, 1, 1) for step in range(3)]
    >>> run = Recorded(rows, 4, topologies.one_peer_exponential(4))
    >>> clocks(run, Cluster.named("ethernet_1g", gpus=4), [fast, fast, fast, slow], steps=3).round(2).tolist()
    [[0.0, 0.0, 1.0, 1.0], [1.0, 2.0, 1.0, 2.0], [2.0, 2.0, 3.0, 3.0]]
    """
    n = len(links)
    billing = Billing(replace(cluster, intra=slowest(links), inter=slowest(links)), n, collective)
    durations = np.broadcast_to(np.asarray(compute, dtype=np.float64), (steps, n))
    ends, now = np.empty((steps, n)), np.zeros(n)
    for step in range(steps):
        now = now + durations[step]
        for operation in sent.operations(step):
            now = after(operation, now, billing, links)
        ends[step] = now
    return ends


def after(operation: Operation, ready: Times, billing: Billing, links: Sequence[Link]) -> Times:
    """(n,) when each worker is through with an operation."""
    matrix, rounds = operation.matrix, operation.rounds
    if matrix is None:
        return np.full_like(ready, ready.max() + billing.seconds(operation)) if rounds else ready
    for _ in range(rounds):
        ready = heard(ready, matrix, operation.wire_bytes / rounds / float(matrix.out_degrees.mean()), links)
    return ready


def heard(ready: Times, matrix: MixingMatrix, size: float, links: Sequence[Link]) -> Times:
    """(n,) when each worker has a message of so many bytes from everyone it hears from.

    >>> from commeff import topologies
    >>> link = Link(bandwidth=1e6, latency=0.25)
    >>> heard(np.array([5.0, 1.0, 2.0, 3.0]), topologies.ring(4).at(0), 1e6, [link] * 4).tolist()
    [7.25, 7.25, 5.25, 7.25]
    """
    up = np.array([link.seconds(size * out) for link, out in zip(links, matrix.out_degrees, strict=True)])
    down = np.array([link.seconds(size * into) for link, into in zip(links, matrix.in_degrees, strict=True)])
    messages, latest = matrix.off_diagonal.tocoo(), ready.copy()
    to, by = messages.row, messages.col
    np.maximum.at(latest, to, np.maximum(ready[to], ready[by]) + np.maximum(down[to], up[by]))
    return latest


def slowest(links: Sequence[Link]) -> Link:
    """The link that a collective over all of these sees: the worst of each property."""
    return Link(
        bandwidth=min(link.rate for link in links),
        latency=max(link.latency for link in links),
        burst=min(link.burst for link in links),
    )
