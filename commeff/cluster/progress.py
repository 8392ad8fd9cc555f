"""The clocks of n workers that compute and send: what hides behind computing, and what is left exposed.

A worker computes for c seconds and has one link, on which its messages follow each other. An operation leaves when the
link is free, all partners are there and it is ready: a share of the step's computing before its end; a round that needs
the result of another one leaves when the step that waits for that has computed. The worker goes on when all has arrived
that is waited for in the step; while it stands still, what travels is *exposed*, otherwise *hidden*.

Waiting is a matrix product in max-plus algebra (Baccelli et al., "Synchronization and Linearity", 1992): an average
over all makes everybody wait for the slowest in every step; gossip passes a delay on by one neighbourhood a step; local
steps wait for nobody until they average.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commeff.profiling import Operation
from commeff.topologies import MixingMatrix

Heard = MixingMatrix | bool  # whom workers hear from in a step: the senders of a matrix; True is all, False nobody
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Transfer:
    """An operation on its way.

    Attributes
    ----------
    kind : of the operation.
    start, end : (n,) seconds at each worker.
    due : the step in which it is waited for.
    """

    kind: str
    start: Times
    end: Times
    due: int


class Progress:
    """Where n workers are in a run; call `step` for one step after the other.

    Parameters
    ----------
    workers : n, or 1 for workers that are all alike and never wait for each other.

    Attributes
    ----------
    exposed : mean seconds of the last step in which workers stood still while an operation of a kind travelled.

    >>> import numpy as np
    >>> from commeff.profiling import Operation
    >>> delayed, progress = Operation(0, "", "all_reduce", 1, 1, 1, 1, waited=1), Progress(1)
    >>> progress.step(0, np.array([2.0]), [(0.0, delayed, 3.0)]).tolist()             # travels from 2 to 5
    [2.0]
    >>> progress.step(1, np.array([2.0]), []).tolist(), dict(progress.exposed)
    ([5.0], {'all_reduce': 1.0})
    """

    def __init__(self, workers: int) -> None:
        self._now, self._link = np.zeros(workers), np.zeros(workers)
        self._under_way: list[Transfer] = []
        self._later: list[tuple[Operation, float]] = []
        self.exposed: dict[str, float] = {}

    def step(self, step: int, computing: Times, sent: Sequence[tuple[float, Operation, float]]) -> Times:
        """(n,) seconds at which each worker ends a step.

        Parameters
        ----------
        computing : (n,) seconds.
        sent : in the order in which they leave: the share of computing that is left when the operation is ready, the
            operation, and the seconds that it takes.
        """
        done = self._now + computing
        late = [(0.0, *entry) for entry in self._later if entry[0].posted <= step]
        self._later = [entry for entry in self._later if entry[0].posted > step]
        self._later += [(operation, seconds) for _, operation, seconds in sent if operation.posted > step]
        for share, operation, seconds in [*late, *(entry for entry in sent if entry[1].posted <= step)]:
            posted = np.maximum(done - share * computing, self._link)
            partners = operation.matrix if operation.matrix is not None else True
            start = waited(posted, partners) if posted.size > 1 else posted
            self._link = start + seconds
            self._under_way.append(Transfer(operation.kind, start, self._link, max(operation.waited, step)))
        self._now = np.maximum.reduce([done, *(transfer.end for transfer in self._under_way if transfer.due <= step)])
        exposed: defaultdict[str, float] = defaultdict(float)
        for transfer in self._under_way:
            both = np.minimum(transfer.end, self._now) - np.maximum(transfer.start, done)
            exposed[transfer.kind] += float(np.maximum(both, 0.0).mean())
        self.exposed = dict(exposed)
        self._under_way = [t for t in self._under_way if t.due > step or (t.end > self._now).any()]
        return self._now

    @property
    def ahead(self) -> Times:
        """Seconds until the link is free and all that is under way has arrived: what later steps still feel of the
        earlier ones.
        """
        ends = [self._link, *(transfer.end for transfer in self._under_way)]
        return np.maximum(np.stack(ends) - self._now, 0.0)


def waited(ready: Times, heard: Heard) -> Times:
    """(n,) when each worker has heard from everyone it hears from, itself included.

    >>> from commeff import topologies
    >>> waited(np.array([5.0, 1.0, 2.0, 3.0]), topologies.ring(4).at(0)).tolist()
    [5.0, 5.0, 3.0, 5.0]
    """
    if not isinstance(heard, MixingMatrix):
        return np.full_like(ready, ready.max()) if heard else ready
    if heard.n != ready.size:
        raise ValueError(f"the mixing matrix must have the {ready.size} workers of the run, got {heard.n}")
    messages, latest = heard.off_diagonal.tocoo(), ready.copy()
    np.maximum.at(latest, messages.row, ready[messages.col])
    return latest


def readiness(
    operations: Sequence[Operation], backward: float, overlap: float | None
) -> Iterator[tuple[float, Operation]]:
    """The operations of a step in the order in which they leave, with the share of computing left when each is ready.

    What leaves early is ready before anything is computed; buckets one after the other while gradients come, in
    proportion to their bytes; all others, and a bucket's later messages, when the gradient is there.

    Parameters
    ----------
    backward : share of computing in which gradients come.
    overlap : share of computing behind which everything can hide, instead of all that; None: as said above.

    >>> buckets = [Operation(0, "gradients", "all_reduce", size, size, 1, 1, bucketed=True) for size in (30, 10)]
    >>> [(round(share, 2), operation.payload_bytes) for share, operation in readiness(buckets, 0.5, None)]
    [(0.12, 30), (0.0, 10)]
    """
    if overlap is not None:
        yield from ((overlap, operation) for operation in operations)
        return
    path = next((op.path for op in operations if op.bucketed and not op.early), None)
    early = [op for op in operations if op.early]
    buckets = [op for op in operations if not op.early and op.bucketed and op.path == path]
    yield from ((1.0, op) for op in early)
    total, reached = sum(op.payload_bytes for op in buckets) or 1.0, 0.0
    for op in buckets:
        reached += op.payload_bytes
        yield backward * (1.0 - reached / total), op
    yield from ((0.0, op) for op in operations if not op.early and not (op.bucketed and op.path == path))
