"""Modelled seconds of a run: what it sends, on a described cluster. Not measured, and never shown as if they were.

A `commeff.profile`, or the ledger of a run, says what is sent in each step and what it can hide behind, the cluster how
long that takes, and compute times, given or drawn, when each worker is ready.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from commeff import require
from commeff.cluster.billing import Billing, Schedule
from commeff.cluster.cluster import Cluster
from commeff.cluster.progress import Progress, Times, readiness
from commeff.profiling import Attended, Operation

BACKWARD = 2 / 3  # of computing: backward multiplies twice as much as forward
CODING = "coding"  # the kind of encoding and decoding, which nothing hides: a worker that does them computes
ROUNDING = 1e-9  # of a period's seconds


@dataclass(frozen=True)
class Modelled:
    """Modelled seconds of n workers.

    Attributes
    ----------
    sent : (steps,) what sending takes, hidden or not, by kind of operation; what encoding and decoding take.
    idle : (steps,) the mean over workers of how long they stand still while something of a kind travels, or encode
        and decode.
    computing : (steps, n) what computing takes.
    finish : (steps, n) when a worker ends a step, all having started at 0.
    """

    sent: Mapping[str, Times]
    idle: Mapping[str, Times]
    computing: Times
    finish: Times

    @property
    def total(self) -> float:
        """Seconds until the slowest worker has ended the last step."""
        return self.seconds(len(self.finish))

    @property
    def step(self) -> float:
        """The mean seconds of a step."""
        return self.total / max(1, len(self.finish))

    @property
    def by_step(self) -> Times:
        """(steps,) when the slowest worker has ended each step."""
        return np.asarray(self.finish.max(axis=1))

    def seconds(self, steps: int) -> float:
        """Until the slowest worker has ended so many steps."""
        return float(self.finish[steps - 1].max()) if steps else 0.0

    @property
    def compute(self) -> float:
        """Computing of a step, in the mean over steps and workers."""
        return float(self.computing.mean()) if self.computing.size else 0.0

    @property
    def communication(self) -> Times:
        """(steps,) what sending takes, hidden or not."""
        return np.asarray(sum((s for kind, s in self.sent.items() if kind != CODING), np.zeros(len(self.finish))))

    @property
    def coding(self) -> Times:
        """(steps,) what encoding and decoding take."""
        return np.asarray(self.sent.get(CODING, np.zeros(len(self.finish))))

    @property
    def exposed(self) -> Times:
        """(steps,) mean over workers of the time of a step in which they do not compute: communication that nothing
        hides, encoding and decoding, and waiting for others.
        """
        lasted = np.diff(self.finish, axis=0, prepend=0.0)
        return np.asarray((lasted - self.computing).mean(axis=1))

    @property
    def hidden(self) -> Times:
        """(steps,) communication that computing hides."""
        return np.maximum(0.0, self.communication + self.coding - self.exposed)

    @property
    def exposed_by_kind(self) -> dict[str, float]:
        """Exposed seconds of a step in the mean."""
        return {kind: float(seconds.mean()) for kind, seconds in self.idle.items()}

    @property
    def hidden_by_kind(self) -> dict[str, float]:
        """Seconds of a step in the mean that something travels while workers compute."""
        means = {kind: float(seconds.mean()) for kind, seconds in self.sent.items()}
        rests = {kind: mean - self.exposed_by_kind.get(kind, 0.0) for kind, mean in means.items()}
        return {kind: rest if rest > ROUNDING * means[kind] else 0.0 for kind, rest in rests.items()}


def modelled(
    schedule: Schedule,
    cluster: Cluster,
    *,
    steps: int,
    compute: ArrayLike = 0.0,
    backward: float = BACKWARD,
    overlap: float | None = None,
    collective: str = "auto",
    shards: int = 1,
) -> Modelled:
    """Modelled seconds of a run.

    A worker's messages follow each other on its link. An operation that leaves early can hide behind the whole
    computation of its step, buckets behind what is left of backward when each is ready, one that is waited for in a
    later step behind what is computed until then; others are exposed.

    Parameters
    ----------
    schedule : a `commeff.profile`, or `billing.Recorded` rows of a ledger.
    cluster : worker i sits on its GPU i.
    steps : of the run.
    compute : seconds of a step: one number, (workers,), or (steps, workers), such as `stragglers.drawn` gives.
    backward : share of a step's computing that backward takes, 0 to 1.
    overlap : share of a step's computing behind which every operation can hide, 0 to 1; None: what `schedule` says.
    collective, shards : see `Billing`.

    >>> from commeff.cluster.billing import Recorded
    >>> from commeff.communicator.ledger import Entry
    >>> rows = [Entry(step, "gradients", "all_reduce", 1e6, 1.5e6, 1, 1) for step in range(10)]
    >>> run = modelled(Recorded(rows, 4), Cluster.named("ethernet_1g", gpus=4), steps=10, compute=0.1)
    >>> round(float(run.communication[0]), 5), round(run.total, 4), round(float(run.exposed.sum()), 4)
    (0.01315, 1.1315, 0.1315)
    """
    bill = Billing(cluster, schedule.workers, collective, shards)
    return play(schedule, bill.seconds, bill.coding, steps=steps, compute=compute, backward=backward, overlap=overlap)


def modelled_present(sent: Attended, cluster: Cluster, *, steps: int, compute: float = 0.0) -> Modelled:
    """`modelled` of a run in which some workers are absent: in each step those who are there wait for each other.

    Nobody computes in a step without anybody. Who returns gets what the others have from one of them.

    Parameters
    ----------
    sent : what those who are there send.
    cluster, steps : as of `modelled`.
    compute : seconds of a step.
    """
    all_workers = Billing(cluster, sent.workers)

    @cache
    def billing(members: tuple[int, ...]) -> Billing:
        return Billing(cluster, len(members), members=members)

    def price(operation: Operation) -> float:
        if operation.kind == "mix":  # the matrix says who is there
            return all_workers.seconds(operation)
        senders, members = sent.senders(operation), sent.members(operation)
        payload, wire = (sent.workers / senders * size for size in (operation.payload_bytes, operation.wire_bytes))
        return billing(members).seconds(operation._replace(payload_bytes=payload, wire_bytes=wire))

    computing = [[compute if sent.present[sent.played(step)] else 0.0] for step in range(steps)]
    return play(sent, price, all_workers.coding, steps=steps, compute=np.reshape(computing, (steps, 1)))


def play(
    schedule: Schedule,
    price: Callable[[Operation], float],
    coding: Callable[[Operation], float] = lambda operation: 0.0,
    *,
    steps: int,
    compute: ArrayLike = 0.0,
    backward: float = BACKWARD,
    overlap: float | None = None,
) -> Modelled:
    """`modelled` where `price` says how many seconds an operation takes, and `coding` how many to encode and decode.

    Of workers that always compute alike and a schedule that repeats, a period that begins and ends alike stands for all
    to come.
    """
    for name, share in (("backward", backward), ("overlap", overlap)):
        if share is not None:
            require.within("[0, 1]", **{name: share})
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 0:
        raise ValueError(f"steps must be a whole number of at least 0, got {steps!r}")
    seconds, workers = np.asarray(compute, dtype=np.float64), schedule.workers
    if seconds.shape not in ((), (workers,), (steps, workers), (steps, 1)):
        raise ValueError(
            f"compute must be one number, or have the shape ({workers},) of the workers or ({steps}, {workers}) of the "
            f"steps and workers, got {seconds.shape}"
        )
    if not (seconds >= 0).all():
        raise ValueError(f"compute must be seconds, 0 or above, got {seconds.min()}")
    computing = np.broadcast_to(seconds, (steps, workers))
    alike = bool((computing == computing[:, :1]).all())
    period = schedule.period if alike and (computing == computing[:1]).all() else None
    progress, durations = Progress(1 if alike else schedule.workers), computing[:, :1] if alike else computing
    sent, idle = (defaultdict[str, Times](lambda: np.zeros(steps)) for _ in range(2))
    finish = np.empty((steps, schedule.workers))
    played, before = 0, np.empty((0, 1))
    for step in range(steps):
        operations = [operation for operation in schedule.operations(step) if operation.rounds]
        priced = [(share, operation, price(operation)) for share, operation in readiness(operations, backward, overlap)]
        codec = sum(coding(operation) for operation in operations)
        finish[step] = progress.step(step, durations[step] + codec, priced)
        if codec:
            sent[CODING][step] = idle[CODING][step] = codec
        for _, operation, duration in priced:
            sent[operation.kind][step] += duration
        for kind, duration in progress.exposed.items():
            idle[kind][step] = duration
        played = step + 1
        if period and played > schedule.first and (played - schedule.first) % period == 0:
            ahead, lasted = progress.ahead, finish[step, 0] - (finish[step - period, 0] if step >= period else 0.0)
            if ahead.shape == before.shape and np.abs(ahead - before).max() <= ROUNDING * lasted:
                break  # a period began and ended alike: so do all to come
            before = ahead
    if period and played < steps:
        turn = np.diff(finish[:played, 0], prepend=0.0)[played - period :]
        finish[played:] = finish[played - 1] + np.cumsum(np.resize(turn, steps - played))[:, None]
        for table in (*sent.values(), *idle.values()):
            table[played:] = np.resize(table[played - period : played], steps - played)
    return Modelled(dict(sent), dict(idle), computing, finish)
