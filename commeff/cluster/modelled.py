"""Modelled seconds of a run: what it sends, on a described cluster. Not measured, and never shown as if they were.

A `commeff.profile`, or the ledger of a run, says what is sent in each step and what it can hide behind, the cluster how
long that takes, and compute times, given or drawn, when each worker is ready.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from commeff.cluster.billing import Billing, Schedule
from commeff.cluster.cluster import Cluster
from commeff.cluster.codec import Codec
from commeff.cluster.progress import Progress
from commeff.cluster.stragglers import Times
from commeff.profiling import Operation

BACKWARD = 2 / 3  # of computing: backward multiplies twice as much as forward


@dataclass(frozen=True)
class Modelled:
    """Modelled seconds of n workers.

    Attributes
    ----------
    communication : (steps,) what sending takes, hidden or not.
    computing : (steps, n) what computing takes.
    finish : (steps, n) when a worker ends a step, all having started at 0.
    """

    communication: Times
    computing: Times
    finish: Times

    @property
    def total(self) -> float:
        """Until the slowest worker has ended the last step."""
        return float(self.finish[-1].max()) if len(self.finish) else 0.0

    @property
    def by_step(self) -> Times:
        """(steps,) when the slowest worker has ended each step."""
        return np.asarray(self.finish.max(axis=1))

    @property
    def exposed(self) -> Times:
        """(steps,) mean over workers of the time of a step in which they do not compute: communication that nothing
        hides, and waiting for others.
        """
        lasted = np.diff(self.finish, axis=0, prepend=0.0)
        return np.asarray((lasted - self.computing).mean(axis=1))

    @property
    def hidden(self) -> Times:
        """(steps,) communication that computing hides."""
        return np.maximum(0.0, self.communication - self.exposed)


def modelled(
    sent: Schedule,
    cluster: Cluster,
    *,
    steps: int,
    compute: ArrayLike = 0.0,
    backward: float = BACKWARD,
    overlap: float | None = None,
    collective: str = "auto",
    shards: int = 1,
    codec: Codec | None = None,
) -> Modelled:
    """Modelled seconds of a run.

    A worker's messages follow each other on its link. An operation that leaves early can hide behind the whole
    computation of its step, one that leaves in buckets behind backward, one that is waited for in a later step behind
    what is computed until then; others are exposed.

    Parameters
    ----------
    sent : a `commeff.profile`, or `billing.Recorded` rows of a ledger.
    cluster : worker i sits on its GPU i.
    steps : of the run.
    compute : seconds of a step: one number, (workers,), or (steps, workers), such as `stragglers.drawn` gives.
    backward : share of a step's computing that backward takes, 0 to 1.
    overlap : share of a step's computing behind which every operation can hide, 0 to 1; None: what `sent` says.
    collective, shards, codec : see `Billing`.

    >>> from commeff.cluster.billing import Recorded
    >>> from commeff.communicator.ledger import Entry
    >>> rows = [Entry(step, "gradients", "all_reduce", 1e6, 1.5e6, 1, 1) for step in range(10)]
    >>> run = modelled(Recorded(rows, 4), Cluster.named("ethernet_1g", gpus=4), steps=10, compute=0.1)
    >>> round(float(run.communication[0]), 5), round(run.total, 4), round(float(run.exposed.sum()), 4)
    (0.01315, 1.1315, 0.1315)
    """
    for name, share in (("backward", backward), ("overlap", overlap)):
        if share is not None and not 0 <= share <= 1:
            raise ValueError(f"{name} must be 0 to 1, got {share}: it is a share of computing")
    n = sent.workers
    billing = Billing(cluster, n, collective, shards, codec)
    computing = np.broadcast_to(np.asarray(compute, dtype=np.float64), (steps, n))
    alike = bool((computing == computing[:, :1]).all())
    progress, durations = Progress(1 if alike else n), computing[:, :1] if alike else computing

    def hides(operation: Operation) -> float:
        if overlap is not None:
            return overlap
        return 1.0 if operation.early else backward if operation.bucketed else 0.0

    communication, finish = np.zeros(steps), np.empty((steps, n))
    for step in range(steps):
        operations = [(hides(each), each, billing.seconds(each)) for each in sent.operations(step) if each.rounds]
        progress.compute(durations[step])
        for share, each, seconds in sorted(operations, key=lambda item: -item[0]):
            progress.send(each, seconds, share)
            communication[step] += seconds
        finish[step] = progress.end(step)
    return Modelled(communication, computing, finish)
