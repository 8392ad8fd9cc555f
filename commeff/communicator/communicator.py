"""The one communicator: rows hosted here are combined in place, others come over a process group. It alone bills."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import copy
from math import prod
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from commeff import require
from commeff.communicator.attendance import Attendance, Now
from commeff.communicator.collectives import ALL_GATHER, ALL_REDUCE, Collective, everybody
from commeff.communicator.collectives import collective as named
from commeff.communicator.ledger import Ledger
from commeff.communicator.mixing import MixPlan, Neighbours, Plans, remembered
from commeff.communicator.server import post_down, post_up
from commeff.communicator.wire.records import broadcast_state
from commeff.communicator.wire.transport import Transport, processes
from commeff.compressors import DenseMessage, Message, WorkerRandom
from commeff.compressors.places import Places
from commeff.compressors.scratch import bands
from commeff.topologies import MixingMatrix
from commeff.topologies.failures import Sums, among

T = TypeVar("T")

SERVER = -1  # the server's id in the keys of its randomness


class Handle(Generic[T]):
    """Communication under way; `wait()` gives its result, any number of times."""

    def __init__(self, finish: Callable[[], T]) -> None:
        self._finish: Callable[[], T] | None = finish
        self._result: T

    def wait(self) -> T:
        """The result."""
        if self._finish is not None:
            self._result = self._finish()
            self._finish = None
        return self._result


class Communicator(Attendance):
    """n workers, of which this process hosts some; method code knows no more than that.

    `Communicator(workers=n)` hosts all n: simulation. `Communicator(workers=n, group=group)` on every process of a
    torch.distributed group hosts an equal consecutive share. The server's row is with worker 0, or where `homed` puts
    it.

    Parameters
    ----------
    workers : int
        n, the number of all workers.
    seed : int
        The key of all randomness.
    group : ProcessGroup, optional
        The processes.
    distributed : bool, optional
        Whether there are several processes; with group=None they are those of the default group. By default, whether a
        group is given.
    collective : str
        How averages travel: "auto" (all_reduce for messages that sum, all_gather for others), "all_reduce", "ring",
        "tree", "all_gather" or "server". What a collective cannot carry is refused.
    transport : Transport, optional
        What stands for the processes instead of a group, where they are only simulated.

    Attributes
    ----------
    n : int
        The number of all workers.
    workers : sequence of int
        The ids of the workers hosted here.
    servers : int
        1 if the server's row is here, else 0.
    step : int
        The clock: model updates since the start, which the driver counts.
    active : (w,) bool tensor or None
        Which hosted workers take part in this step; None: all. It is given for all n, on every process the same.
    moving : (w,) bool tensor or None
        Which of these take their local step, though all of them communicate; None: all.
    finished : (n,) bool tensor
        Who of all n workers has a gradient for this step. Unless set, everybody who is there; the others of an
        asynchronous method are there too, and still compute.
    samples : (n,) tensor or None
        How many training samples each worker has, if who drives the method knows.
    losses : (w,) tensor or None
        The losses of the hosted workers' batches of this step, if who drives the method says so.
    ledger : Ledger
        What was sent, per worker.
    transport : Transport
        The processes, and the bytes handed to them.
    path, start, home : tuple of str, int, int
        What this view is of: the place in the strategy, from which column on, and the worker with the server's row.

    Examples
    --------
    >>> from commeff.compressors import Dense
    >>> communicator = Communicator(workers=2, seed=0)
    >>> v = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    >>> communicator.average(Dense().compress(v, communicator.random("up"))).tolist()
    [[2.0, 4.0], [2.0, 4.0]]
    >>> communicator.ledger.payload_bytes, communicator.ledger.wire_bytes
    (8, 8)
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        group: Any = None,
        distributed: bool | None = None,
        collective: str = "auto",
        transport: Transport | None = None,
    ) -> None:
        require.at_least(1, workers=workers)
        if transport is None:
            transport = Transport(group, alone=not (group is not None if distributed is None else distributed))
        if transport.size > workers:
            raise ValueError(
                f"{workers} workers need at most {workers} processes, got {transport.size}: each hosts at least one"
            )
        bounds = [workers * r // transport.size for r in range(transport.size + 1)]
        self.n, self.seed, self.transport, self.ledger = workers, seed, transport, Ledger()
        self.workers: Sequence[int] = range(bounds[transport.rank], bounds[transport.rank + 1])
        self.path: tuple[str, ...] = ()
        self.start, self.home = 0, 0
        self._apart = False  # whether rows are others than the strategy's, which lie at:
        self._places: Places | None = None
        self._bounds, self._homes, self._collective, self._now = bounds, bounds, named(collective), Now()
        self._among: Tensor | None = None  # (all workers,) bool: who is there, in a view of these
        self._plans: Plans = {}
        self._views: dict[Any, Self] = {}
        self._label = ""

    @classmethod
    def per_process(cls, seed: int = 0, group: Any = None, collective: str = "auto") -> Communicator:
        """One worker on each process of a torch.distributed group, the default one unless given."""
        return cls(processes(group), seed, group, distributed=True, collective=collective)

    def _view(self, key: Any, path: tuple[str, ...], start: int, home: int, workers: Sequence[int]) -> Self:
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = copy(self)
            view.path, view.start, view.home, view.workers = path, start, home, workers
            view._label, view._views = "/".join(path), {}
        return view

    def child(self, name: str) -> Self:
        """One level deeper in the path that keys randomness and labels the ledger."""
        return self._view(name, (*self.path, name), self.start, self.home, self.workers)

    at = child

    def columns(self, start: int) -> Self:
        """The communicator of the columns from `start` on: the same streams of random numbers, from there on."""
        return self._view(start, self.path, self.start + start, self.home, self.workers)

    def apart(self, name: str) -> Self:
        """As `child`, for vectors of their own: their columns are counted from 0, wherever they lie in the rows."""
        return self.child(name).placed(None)

    def placed(self, places: Places | None) -> Self:
        """The communicator of vectors whose columns lie at these places of the whole row, or are counted from 0."""
        view = self._view(("placed", places), self.path, 0, self.home, self.workers)
        view._apart, view._places = True, places
        return view

    def homed(self, worker: int) -> Self:
        """The communicator whose server row is with that worker: one shard of a sharded server."""
        return self._view(("home", worker), self.path, self.start, worker, self.workers)

    def together(self, linger: bool = False) -> AbstractContextManager[None]:
        """Posts everything begun inside as one operation, at the end, so that exchanges do not queue behind each other.

        With `linger` it waits even longer, until a result is needed, where that costs nothing.
        """
        return self.transport.together(linger)

    @property
    def server(self) -> Self:
        """A view whose only rows are the server's: its randomness, its rows."""
        return self._view(None, (*self.path, "server"), self.start, self.home, (SERVER,) * self.servers)

    @property
    def servers(self) -> int:
        """1 if the server's row is hosted here, else 0."""
        return int(self.transport.rank == self._host)

    @property
    def _host(self) -> int:
        """The process that hosts the server's row."""
        return bisect_right(self._homes, self.home) - 1

    def random(self, purpose: str) -> WorkerRandom:
        """A stream for each hosted row, keyed by (seed, step, worker, path, purpose): equal on every engine."""
        path, places = (*self.path, purpose), self._places if self._apart else self._now.places
        return WorkerRandom(self.seed, self.workers, self._now.step, path, self.start, self._now.device, places)

    def average(self, message: Message) -> Tensor:
        """(1/n) sum_j decode(m_j), as (w, d); the rows may be views of one row."""
        return self.post_average(message).wait()

    def mix(
        self, message: Message, matrix: MixingMatrix, out: Tensor | None = None, keep: Sums | None = None
    ) -> Tensor:
        """sum_j W[i, j] decode(m_j) for every hosted i. out may be the very memory the message was made of.

        keep: which sums of W stay where workers are absent, "rows" or "columns"; see `topologies.without_workers`.
        """
        return self.post_mix(message, matrix, out, keep).wait()

    def bill_average(self, message: Message) -> Collective:
        """Enter an average of such messages into the ledger, and say how it travels."""
        chosen = self._collective or (ALL_REDUCE if message.summable else ALL_GATHER)
        chosen.check(message)
        self._bill(chosen.kind, message, wire=chosen.wire(self.n), messages=min(1, self.n - 1))
        return chosen

    def post_average(self, message: Message) -> Handle[Tensor]:
        """`average`, begun now."""
        mean = self.post_mean(message)
        return Handle(lambda: mean.wait().expand(len(self.workers), -1))

    def post_mean(self, message: Message) -> Handle[Tensor]:
        """The same as one row, (1, d), also where nobody is hosted who is there: for what all processes remember."""
        message = self._agreed(message)
        chosen = self.bill_average(message)
        return Handle(chosen.post(message, self.n, self._bounds, self.transport))

    def post_mix(
        self, message: Message, matrix: MixingMatrix, out: Tensor | None = None, keep: Sums | None = None
    ) -> Handle[Tensor]:
        """`mix`, begun now. The message's memory is read until the result is there."""
        message = self._agreed(message)
        return Handle(self._mixing(message, matrix, keep).post(message, self.transport, out))

    def neighbours(self, message: Message, matrix: MixingMatrix) -> Neighbours:
        """The messages of which `mix` gives the weighted sum, one by one, for the same bill: for rules of your own."""
        return self.post_neighbours(message, matrix).wait()

    def post_neighbours(self, message: Message, matrix: MixingMatrix) -> Handle[Neighbours]:
        """`neighbours`, begun now."""
        message = self._agreed(message)
        return Handle(self._mixing(message, matrix).post_each(message, self.transport))

    def _mixing(self, message: Message, matrix: MixingMatrix, keep: Sums | None = None) -> MixPlan:
        """Bill such a mixing, and plan it."""
        plan = self._plan(matrix if self._among is None else among(matrix, self._among.numpy(), keep))
        self._bill("mix", message, wire=plan.out_degree, messages=plan.out_degree, senders=plan.senders)
        return plan

    def gather(self, message: Message) -> Message:
        """All n messages in worker order, at every process."""
        return self.post_gather(message).wait()

    def post_gather(self, message: Message) -> Handle[Message]:
        """`gather`, begun now."""
        message = self._agreed(message)
        self._bill("all_gather", message, wire=self.n - 1, messages=min(1, self.n - 1))
        return Handle(everybody(message, self._bounds, self.transport))

    def to_server(self, message: Message) -> Tensor:
        """The mean of all messages at the server: (s, d)."""
        return self.post_to_server(message).wait()

    def post_to_server(self, message: Message) -> Handle[Tensor]:
        """`to_server`, begun now."""
        message = self._agreed(message)
        self._bill("to_server", message, wire=1, messages=1)
        return Handle(post_up(message, self._bounds, self._host, self.transport))

    def from_server(self, message: Message) -> Tensor:
        """The server's message at every worker: (w, d)."""
        return self.post_from_server(message).wait()

    def post_from_server(self, message: Message) -> Handle[Tensor]:
        """`from_server`, begun now."""
        message = self._agreed(message)
        self._bill("from_server", message, wire=1, messages=1)
        arrived = post_down(message, self._host, self.transport)
        return Handle(lambda: arrived().expand(len(self.workers), -1))

    def observe(self, rows: Tensor) -> Tensor:
        """The mean of (w, ...) rows over all workers in float64, for measuring: no part of a method, not billed."""
        return self.post_observe(rows).wait()

    def post_observe(self, rows: Tensor) -> Handle[Tensor]:
        """`observe`, begun now."""
        counts = self.transport.sent.copy()
        arrived = self.transport.sum(_total(rows.to(self.device)))
        self.transport.sent = counts
        return Handle(lambda: arrived().div_(self.n))

    def tell(self, state: Any, source: int) -> Any:
        """The state that the process which hosts the worker `source` gives, at every process; not billed."""
        if self.transport.size == 1:
            return state
        return broadcast_state(state, self.transport.group, bisect_right(self._homes, source) - 1)

    def meet(self) -> None:
        """Wait until all processes are here."""
        if self.transport.size > 1:
            self.observe(torch.zeros(len(self.workers)))

    def _agreed(self, message: Message) -> Message:
        """A message whose size depends on values as long as the longest of all, which a round of its own tells."""
        if not message.lengths:
            return message
        own = torch.tensor(message.lengths, device=message.parts[0].device).repeat(len(self.workers), 1)
        (lengths,) = self.gather(DenseMessage.of(own)).parts
        if lengths.is_meta:
            return message
        return message.stretched([*map(max, message.lengths, lengths.amax(0).tolist())])

    def _bill(self, kind: str, message: Message, *, wire: float, messages: float, senders: float = 1.0) -> None:
        """Bill what another worker receives; `senders` is the share of workers whose message anybody receives."""
        size, count, share = message.row_bytes, message.count if messages else 0, self.share
        payload = size * senders * share if messages else 0
        self.ledger.bill(self.step, self._label, kind, payload, wire * size * share, messages * count * share, count)

    def _plan(self, matrix: MixingMatrix) -> MixPlan:
        return remembered(self._plans, matrix, self._bounds, self.transport.rank)


def _total(rows: Tensor) -> Tensor:
    """The sum of rows (w, ...) in float64, which is no dtype of all of them at once."""
    columns = rows.reshape(len(rows), prod(rows.shape[1:]))
    total = columns.new_empty(columns.shape[1], dtype=torch.float64)
    for band in bands(len(columns), columns.shape[1], columns.device):
        torch.sum(columns[:, band], 0, dtype=torch.float64, out=total[band])
    return total.view(rows.shape[1:])
