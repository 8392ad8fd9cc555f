"""The one communicator: rows hosted here are combined in place, others come over a process group. It alone bills."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, Generic, Self, TypeVar

import torch
from torch import Tensor

from commeff import require
from commeff.communicator.collectives import ALL_GATHER, ALL_REDUCE, everybody, post_down, post_up
from commeff.communicator.collectives import collective as named
from commeff.communicator.context import Context
from commeff.communicator.ledger import Ledger
from commeff.communicator.mixing import MixPlan, Neighbours, Plans, remembered
from commeff.communicator.wire.transport import Transport, started_alone
from commeff.compressors import DenseMessage, Message, WorkerRandom
from commeff.compressors.places import Places
from commeff.topologies import MixingMatrix
from commeff.topologies.failures import Sums, among

T = TypeVar("T")


def _sent(message: Message) -> Message:
    """The message, if it is one."""
    if not isinstance(message, Message):
        raise TypeError(
            f"what is sent must be a Message, got a {type(message).__name__}: send a tensor as it is by "
            "DenseMessage.of(v), or compressed by as_encoder(compressor).encode(v, communicator, name)"
        )
    return message


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


class Communicator:
    """n workers, of which this process hosts some; method code knows no more than that.

    `Communicator(workers=n)` hosts all n: simulation. `Communicator(workers=n, group=group)` on every process of a
    torch.distributed group hosts an equal consecutive share. The server's row is with worker 0. What only some parts
    of a method need is beside this class: `views` of some columns or workers, and `unbilled` measurements.

    Parameters
    ----------
    workers : int, optional
        n, the number of all workers; unless given, one on each process of the group.
    seed : int
        The key of all randomness.
    group : ProcessGroup, optional
        The processes.
    distributed : bool, optional
        Whether there are several processes; with group=None they are those of the default group. By default, whether a
        group is given, or workers is not.
    collective : str
        How averages travel: "auto" (all_reduce for messages that sum, all_gather for others), "all_reduce", "ring",
        "tree", "all_gather" or "server". What a collective cannot carry is refused.
    transport : Transport, optional
        What stands for the processes instead of a group, where they are only simulated.

    Attributes
    ----------
    n : int
        The number of workers; for the transforms of a step that some miss, of those who take part.
    workers : sequence of int
        The ids of those hosted here.
    servers : int
        1 if the server's row is here, else 0.
    step : int
        The clock: model updates since the start, which the driver counts.
    ledger : Ledger
        What was sent, per worker.
    path : tuple of str
        The place in the strategy, which keys randomness and labels the ledger.
    context : Context
        What the driver knows of the step, begun by `begin`.
    transport : Transport
        The processes, and the bytes handed to them.

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

    __slots__ = (  # what is written elsewhere, such as losses, which the context has, is refused
        *("context", "ledger", "n", "path", "seed", "transport", "workers"),
        *("_among", "_bounds", "_collective", "_foreign", "_home", "_hosts", "_places", "_plans", "_start", "_views"),
    )

    def __init__(
        self,
        workers: int | None = None,
        seed: int = 0,
        group: Any = None,
        distributed: bool | None = None,
        collective: str = "auto",
        transport: Transport | None = None,
    ) -> None:
        if transport is None:
            if distributed is None:
                distributed = group is not None or (workers is None and not started_alone())
            transport = Transport(group, alone=not distributed)
        n = transport.size if workers is None else workers
        require.at_least(1, workers=n)
        if transport.size > n:
            raise ValueError(f"{n} workers need at most {n} processes, got {transport.size}: each hosts at least one")
        bounds = [n * r // transport.size for r in range(transport.size + 1)]
        self.n, self.seed, self.transport, self.ledger, self.context = n, seed, transport, Ledger(), Context(n)
        self.workers: Sequence[int] = range(bounds[transport.rank], bounds[transport.rank + 1])
        self.path: tuple[str, ...] = ()
        self._start, self._home = 0, 0  # the first column, and the worker with the server's row
        self._foreign = False  # whether rows are others than the strategy's, which lie at:
        self._places: Places | None = None
        self._hosts = bounds  # the first worker on each process, and n
        self._bounds = bounds  # the same of those that take part
        self._among: Tensor | None = None  # (n,) bool: these, in a view of some
        self._collective = named(collective)
        self._plans: Plans = {}
        self._views: dict[Any, Self] = {}

    def _copy(self, **changes: Any) -> Self:
        copied = copy(self)
        for name, value in (changes | {"_views": {}}).items():
            setattr(copied, name, value)
        return copied

    def _view(self, key: Any, **changes: Any) -> Self:
        """The copy with these changes, which is made once."""
        if key not in self._views:
            self._views[key] = self._copy(**changes)
        return self._views[key]

    @property
    def step(self) -> int:
        """Model updates since the start; the driver moves it."""
        return self.context.step

    @step.setter
    def step(self, value: int) -> None:
        self.context.step = value

    def begin(
        self,
        step: int,
        *,
        present: Tensor | None = None,
        finished: Tensor | None = None,
        losses: Tensor | None = None,
    ) -> None:
        """Begin a step that differs from others in more than its number: the driver calls it, on every process.

        Parameters
        ----------
        step : int
            Its number.
        present : (n,) bool tensor, optional
            Who takes part in it; everybody unless given.
        finished : (n,) bool tensor, optional
            Who of these has a gradient for it; all of them unless given.
        losses : (w,) tensor, optional
            The losses of the hosted workers' batches, which some methods adapt to.
        """
        self.context.begin(step, present, finished, losses, [*self.workers])

    def child(self, name: str) -> Self:
        """One level deeper in the path that keys randomness and labels the ledger."""
        return self._view(("child", name), path=(*self.path, name))

    @property
    def server(self) -> Self:
        """A view whose only rows are the server's: its randomness, in whose keys it is worker -1, its rows."""
        return self._view("server", path=(*self.path, "server"), workers=(-1,) * self.servers)

    @property
    def servers(self) -> int:
        """1 if the server's row is hosted here, else 0."""
        return int(self.transport.rank == self._host)

    @property
    def _host(self) -> int:
        """The process that hosts the server's row."""
        return bisect_right(self._hosts, self._home) - 1

    def random(self, purpose: str) -> WorkerRandom:
        """A stream for each hosted row, keyed by (seed, step, worker, path, purpose): equal on every engine."""
        context, path = self.context, (*self.path, purpose)
        places = self._places if self._foreign else context.places
        return WorkerRandom(self.seed, self.workers, context.step, path, self._start, context.device, places)

    def average(self, message: Message) -> Tensor:
        """(1/n) sum_j decode(m_j), as (w, d); the rows may be views of one row."""
        return self.post_average(message).wait()

    def mix(
        self,
        message: Message,
        matrix: MixingMatrix,
        out: Tensor | None = None,
        keep: Sums | None = None,
        combine: Callable[[Neighbours], Tensor] | None = None,
    ) -> Tensor:
        """sum_j W[i, j] decode(m_j) for every hosted i.

        Parameters
        ----------
        message : Message
            m_i of the hosted workers.
        matrix : MixingMatrix
            W.
        out : (w, d) tensor, optional
            Where the result goes, which may be the very memory that the message was made of.
        keep : {"rows", "columns"}, optional
            Which sums of W stay where workers are absent; see `topologies.without_workers`.
        combine : callable, optional
            A rule in the place of the weighted sum: gets the same messages one by one, for the same bill.
        """
        return self.post_mix(message, matrix, out, keep, combine).wait()

    def post_average(self, message: Message, rows: int | None = None) -> Handle[Tensor]:
        """`average`, begun now. The message's memory is read until the result is there, and is that of a lone worker's.

        Parameters
        ----------
        message : Message
            m_i of the hosted workers.
        rows : int, optional
            How many rows the mean gets: one for each hosted worker unless given. A process that hosts no present worker
            has none of these; with 1 it gets the mean too, for a decision that is the same on all processes.
        """
        chosen = self._collective or (ALL_REDUCE if _sent(message).summable else ALL_GATHER)
        message = self._billed(chosen.kind, message, wire=chosen.wire(self.n), messages=min(1, self.n - 1))
        mean = chosen.post(message, self.n, self._bounds, self.transport)
        return self._handle(lambda: mean().expand(len(self.workers) if rows is None else rows, -1))

    def post_mix(
        self,
        message: Message,
        matrix: MixingMatrix,
        out: Tensor | None = None,
        keep: Sums | None = None,
        combine: Callable[[Neighbours], Tensor] | None = None,
    ) -> Handle[Tensor]:
        """`mix`, begun now. The message's memory is read until the result is there."""
        plan = self._mixing(matrix, keep)
        message = self._billed("mix", message, wire=plan.out_degree, messages=plan.out_degree, senders=plan.senders)
        if combine is None:
            return self._handle(plan.post(message, self.transport, out))
        neighbours = plan.post_each(message, self.transport)
        return self._handle(lambda: combine(neighbours()))

    def gather(self, message: Message) -> Message:
        """All n messages in worker order, at every process."""
        return self.post_gather(message).wait()

    def post_gather(self, message: Message) -> Handle[Message]:
        """`gather`, begun now."""
        message = self._billed("all_gather", message, wire=self.n - 1, messages=min(1, self.n - 1))
        return self._handle(everybody(message, self._bounds, self.transport))

    def to_server(self, message: Message) -> Tensor:
        """The mean of all messages at the server: (s, d)."""
        return self.post_to_server(message).wait()

    def post_to_server(self, message: Message) -> Handle[Tensor]:
        """`to_server`, begun now."""
        message = self._billed("to_server", message, wire=1, messages=1)
        return self._handle(post_up(message, self._bounds, self._host, self.transport))

    def from_server(self, message: Message) -> Tensor:
        """The server's message at every worker: (w, d)."""
        return self.post_from_server(message).wait()

    def post_from_server(self, message: Message) -> Handle[Tensor]:
        """`from_server`, begun now."""
        message = self._billed("from_server", message, wire=1, messages=1)
        arrived = post_down(message, self._host, self.transport)
        return self._handle(lambda: arrived().expand(len(self.workers), -1))

    def _mixing(self, matrix: MixingMatrix, keep: Sums | None) -> MixPlan:
        """The plan of such a mixing, by those who take part."""
        among_them = matrix if self._among is None else among(matrix, self._among.numpy(), keep)
        return remembered(self._plans, among_them, self._bounds, self.transport.rank)

    def _billed(self, kind: str, message: Message, *, wire: float, messages: float, senders: float = 1.0) -> Message:
        """The message as it travels, once it is billed: what another worker receives; `senders` is the share of workers
        whose message anybody receives.

        One whose size depends on values is as long as the longest of all, which a round of its own tells.
        """
        if _sent(message).lengths:
            local_lengths = torch.tensor(message.lengths, device=message.parts[0].device).repeat(len(self.workers), 1)
            (lengths,) = self.gather(DenseMessage.of(local_lengths)).parts
            if not lengths.is_meta:
                message = message.stretched([*map(max, message.lengths, lengths.amax(0).tolist())])
        size, count, share = message.row_bytes, message.count if messages else 0, self.n / self.context.n
        payload = size * senders * share if messages else 0
        self.ledger.bill(
            self.context.step, "/".join(self.path), kind, payload, wire * size * share, messages * count * share, count
        )
        return message

    def _handle(self, finish: Callable[[], T]) -> Handle[T]:
        """The handle of the operation that was billed last."""
        return Handle(finish)
