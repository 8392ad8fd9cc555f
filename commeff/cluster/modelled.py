"""Modelled seconds of a run: its ledger on a described cluster. Not measured, and never shown as if they were.

The ledger says what was sent in each step, the cluster how long that takes, and compute times, given or drawn, when
each worker is ready. `modelled(rows, cluster, workers, ...)` puts the three together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from commeff.cluster import placed
from commeff.cluster.costs import Codec
from commeff.cluster.hardware import Cluster
from commeff.cluster.stragglers import Heard, Times, finish_times
from commeff.communicator.ledger import Entry
from commeff.topologies import MixingMatrix, Topology

FIXED = {"ring": "ring", "tree": "binomial_tree"}  # kinds of a ledger that say how an average was made
KINDS = ("all_reduce", "all_gather", "mix", "server", "to_server", "from_server", *FIXED)


@dataclass(frozen=True)
class Billing:
    """Seconds of single operations of a ledger.

    Parameters
    ----------
    cluster : where; worker i sits on its GPU i.
    workers : n.
    topology : who mixes with whom; needed if the ledger holds `mix`.
    collective : how an `all_reduce` is made, of which the ledger does not say how: one of `placed.ALL_REDUCE`.
    shards : of the server, on as many of the workers.
    codec : what encoding and decoding costs; None: nothing.
    """

    cluster: Cluster
    workers: int
    topology: Topology | None = None
    collective: str = "ring"
    shards: int = 1
    codec: Codec | None = None

    def __post_init__(self) -> None:
        placed.all_reduce(self.cluster, self.workers, 0, self.collective)
        if self.topology is not None and self.topology.n != self.workers:
            raise ValueError(
                f"a topology of {self.topology.n} workers was given for a run of {self.workers}; make both equal"
            )

    def seconds(self, row: Entry) -> float:
        """One operation: its rounds one after the other, each encoded, sent and decoded."""
        size, n = row.payload_bytes / row.rounds, self.workers
        if row.kind == "all_reduce" or row.kind in FIXED:
            algorithm = FIXED.get(row.kind, self.collective)
            once, received = placed.all_reduce(self.cluster, n, size, algorithm), 1.0
        elif row.kind == "all_gather":
            once, received = placed.all_gather(self.cluster, n, size), n - 1.0
        elif row.kind == "mix":
            matrix, degree = self.matrix(row)
            size, received = row.wire_bytes / row.rounds / degree, float(matrix.in_degrees.max())
            once = placed.gossip(self.cluster, matrix, size)
        elif row.kind in ("to_server", "from_server", "server"):
            ways = 2 if row.kind == "server" else 1
            once = ways * placed.to_server(self.cluster, n, size, self.shards)
            received = n / self.shards if row.kind == "to_server" else 1.0
        else:
            raise ValueError(f"the ledger holds the operation {row.kind!r}; seconds are known for {' '.join(KINDS)}")
        return row.rounds * (once + (self.codec.seconds(size, received) if self.codec else 0.0))

    def matrix(self, row: Entry) -> tuple[MixingMatrix, float]:
        """The matrix by which a row was mixed, and how many others each worker sends to in the mean."""
        if self.topology is None:
            raise ValueError(
                f"the ledger holds gossip (step {row.step}); give the topology that says who mixes with whom"
            )
        matrix = self.topology.at(row.step)
        degree, billed = float(matrix.out_degrees.mean()), row.messages / row.rounds
        if abs(degree - billed) > 1e-9 * max(1.0, billed):
            raise ValueError(
                f"in step {row.step} the ledger sends {billed:g} messages a worker and the given topology {degree:g}; "
                "give the topology of the run"
            )
        return matrix, degree

    def heard(self, row: Entry) -> Heard:
        """Whom the workers wait for in an operation."""
        return self.matrix(row)[0] if row.kind == "mix" else True


@dataclass(frozen=True)
class Modelled:
    """Modelled seconds: communication (steps,), what sending takes; finish (steps, n), when a worker ends a step."""

    communication: Times
    finish: Times

    @property
    def total(self) -> float:
        """Until the slowest worker has ended the last step."""
        return float(self.finish[-1].max()) if len(self.finish) else 0.0

    @property
    def by_step(self) -> Times:
        """(steps,) when the slowest worker has ended each step."""
        return np.asarray(self.finish.max(axis=1))


def modelled(
    rows: Iterable[Entry],
    cluster: Cluster,
    workers: int,
    *,
    steps: int,
    topology: Topology | None = None,
    compute: ArrayLike = 0.0,
    overlap: float = 0.0,
    collective: str = "ring",
    shards: int = 1,
    codec: Codec | None = None,
) -> Modelled:
    """Modelled seconds of a run from the rows of its ledger.

    Parameters
    ----------
    rows : `ledger.rows`; a step without rows sends nothing, and nobody waits in it.
    steps : of the run.
    compute : seconds of a step: one number, (workers,), or (steps, workers), such as `drawn` gives.
    overlap : the share of a step's compute time behind which communication can hide, 0 to 1.
    topology, collective, shards, codec : see `Billing`.

    >>> rows = [Entry(step, "gradients", "all_reduce", 1e6, 1.5e6, 1, 1) for step in range(10)]
    >>> cluster = Cluster.named("ethernet_1g", gpus=4)
    >>> run = modelled(rows, cluster, workers=4, steps=10, compute=0.1)
    >>> round(float(run.communication[0]), 5), round(run.total, 4)
    (0.01314, 1.1314)
    """
    if not 0 <= overlap <= 1:
        raise ValueError(
            f"an overlap of {overlap} was asked for; it is the share of compute time that can hide communication"
        )
    billing = Billing(cluster, workers, topology, collective, shards, codec)
    period = topology.period if topology is not None else 1
    known: dict[tuple[object, ...], float] = {}
    seconds: Times = np.zeros(steps)
    heard: list[Heard] = [False] * steps
    for row in rows:
        if not row.rounds:
            continue
        if row.step >= steps:
            raise ValueError(
                f"the ledger holds step {row.step} and the run has {steps} steps; give steps={row.step + 1}"
            )
        key = (*row[2:], row.step % period if period else row.step)
        if key not in known:
            known[key] = billing.seconds(row)
        seconds[row.step] += known[key]
        if heard[row.step] is not True:
            heard[row.step] = billing.heard(row)
    durations = np.broadcast_to(np.asarray(compute, dtype=np.float64), (steps, workers))
    exposed = np.maximum(0.0, seconds[:, None] - overlap * durations)
    return Modelled(seconds, finish_times(durations, heard, exposed))
