"""The one communicator: rows hosted here are combined in place, rows hosted elsewhere come over a process group. It
alone bills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from commeff.communicator.collectives import ALL_GATHER, ALL_REDUCE, everybody, mean
from commeff.communicator.collectives import collective as named
from commeff.communicator.hosting import Common, Hosting
from commeff.communicator.mixing import MixPlan
from commeff.communicator.wire.transport import Transport, processes
from commeff.compressors import DenseMessage, Message
from commeff.topologies import MixingMatrix

T = TypeVar("T")


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


class Communicator(Hosting):
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
        Which hosted workers take part in this step; None: all.
    ledger : Ledger
        What was sent, per worker.
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

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        group: Any = None,
        distributed: bool | None = None,
        collective: str = "auto",
        transport: Transport | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}: a run needs somebody who works")
        if transport is None:
            transport = Transport(group, alone=not (group is not None if distributed is None else distributed))
        if transport.size > workers:
            raise ValueError(
                f"{workers} workers need at most {workers} processes, got {transport.size}: each hosts at least one"
            )
        bounds = [workers * r // transport.size for r in range(transport.size + 1)]
        self._common = Common(workers, seed, transport, bounds, named(collective))
        self._views = {}
        self.path = ()
        self._label = ""
        self.start = 0
        self.home = 0
        self.workers = range(bounds[transport.rank], bounds[transport.rank + 1])

    @classmethod
    def per_process(cls, seed: int = 0, group: Any = None, collective: str = "auto") -> Communicator:
        """One worker on each process of a torch.distributed group, the default one unless given."""
        return cls(processes(group), seed, group, distributed=True, collective=collective)

    def average(self, message: Message) -> Tensor:
        """(1/n) sum_j decode(m_j), as (w, d); the rows may be views of one row."""
        return self.post_average(message).wait()

    def mix(self, message: Message, matrix: MixingMatrix, out: Tensor | None = None) -> Tensor:
        """sum_j W[i, j] decode(m_j) for every hosted i. out may be the very memory the message was made of."""
        return self.post_mix(message, matrix, out).wait()

    def post_average(self, message: Message) -> Handle[Tensor]:
        """`average`, begun now."""
        chosen = self._common.collective or (ALL_REDUCE if message.summable else ALL_GATHER)
        chosen.check(message)
        self._bill(chosen.kind, message, wire=chosen.wire(self.n), messages=min(1, self.n - 1))
        arrived = chosen.post(message, self.n, self._common.bounds, self.transport)
        return Handle(lambda: arrived().expand(len(self.workers), -1))

    def post_mix(self, message: Message, matrix: MixingMatrix, out: Tensor | None = None) -> Handle[Tensor]:
        """`mix`, begun now. The message's memory is read until the result is there."""
        plan = self._plan(matrix)
        self._bill("mix", message, wire=plan.out_degree, messages=plan.out_degree, senders=plan.senders)
        arrived = self._receive(message, plan)

        def wait() -> Tensor:
            own, received = message.decode(), arrived()
            mixed = own.clone(memory_format=torch.contiguous_format) if out is None else out
            if out is not None and out.data_ptr() != own.data_ptr():
                out.copy_(own)
            if received and isinstance(message, DenseMessage):
                return plan.all.run(mixed, [row for part in received for row in part.decode()])
            plan.local.run(mixed)
            first = 0
            for part in received:
                part.add_to(mixed, plan.weights[:, first : first + part.rows].to(mixed))
                first += part.rows
            return mixed

        return Handle(wait)

    def gather(self, message: Message) -> Message:
        """All n messages in worker order, at every process."""
        return self.post_gather(message).wait()

    def post_gather(self, message: Message) -> Handle[Message]:
        """`gather`, begun now."""
        self._bill("all_gather", message, wire=self.n - 1, messages=min(1, self.n - 1))
        return Handle(everybody(message, self._common.bounds, self.transport))

    def to_server(self, message: Message) -> Tensor:
        """The mean of all messages at the server: (s, d)."""
        return self.post_to_server(message).wait()

    def post_to_server(self, message: Message) -> Handle[Tensor]:
        """`to_server`, begun now."""
        self._bill("to_server", message, wire=1, messages=1)
        transport, bounds, host = self.transport, self._common.bounds, self._host
        rows = message.to_buffer() if transport.size > 1 else torch.empty(0)
        others = [rank for rank in range(transport.size) if rank != host and self.servers]
        incoming = {rank: rows.new_empty(bounds[rank + 1] - bounds[rank], message.row_bytes) for rank in others}
        done = transport.exchange("to_server", {} if self.servers else {host: rows}, incoming)

        def wait() -> Tensor:
            arrived = done()
            if not self.servers:
                return torch.empty(0, message.d, dtype=message.dtype, device=message.parts[0].device)
            everything = [rows if rank == host else arrived[rank] for rank in range(transport.size)]
            return mean(message.from_buffer(torch.cat(everything)) if others else message)

        return Handle(wait)

    def from_server(self, message: Message) -> Tensor:
        """The server's message at every worker: (w, d)."""
        return self.post_from_server(message).wait()

    def post_from_server(self, message: Message) -> Handle[Tensor]:
        """`from_server`, begun now."""
        self._bill("from_server", message, wire=1, messages=1)
        transport, host = self.transport, self._host
        device = message.parts[0].device
        if self.servers:
            answer = message.to_buffer() if transport.size > 1 else torch.empty(0)
            done = transport.exchange("from_server", {r: answer for r in range(transport.size) if r != host}, {})
        else:
            answer = torch.empty(1, message.row_bytes, dtype=torch.uint8, device=device)
            done = transport.exchange("from_server", {}, {host: answer})

        def wait() -> Tensor:
            received = done()
            answered = message if self.servers else message.from_buffer(received[host].clone())
            return answered.decode().expand(len(self.workers), -1)

        return Handle(wait)

    def observe(self, rows: Tensor) -> Tensor:
        """The mean of (w, ...) rows over all workers in float64, for measuring and logging: no part of a method, not
        billed.
        """
        return self.post_observe(rows).wait()

    def post_observe(self, rows: Tensor) -> Handle[Tensor]:
        """`observe`, begun now."""
        counts = self.transport.sent.copy()
        arrived = self.transport.sum(rows.to(self.device).sum(0, dtype=torch.float64))
        self.transport.sent = counts
        return Handle(lambda: arrived() / self.n)

    def meet(self) -> None:
        """Wait until all processes are here."""
        if self.transport.size > 1:
            self.observe(torch.zeros(len(self.workers)))

    def _bill(self, kind: str, message: Message, *, wire: float, messages: float, senders: float = 1.0) -> None:
        """Bill what another worker receives; `senders` is the share of workers whose message anybody receives."""
        size, count, common = message.row_bytes, message.count if messages else 0, self._common
        payload = size * senders if messages else 0
        common.ledger.bill(common.step, self._label, kind, payload, wire * size, messages * count, count)

    def _receive(self, message: Message, plan: MixPlan) -> Callable[[], list[Message]]:
        """Posts what the plan says; gives the messages that come in, in the order of the plan's weights."""
        if not plan.outgoing and not plan.incoming:
            return list
        rows = message.to_buffer()
        outgoing = {peer: _rows(rows, indices) for peer, indices in plan.outgoing.items()}
        incoming = {peer: rows.new_empty(count, rows.shape[1]) for peer, count in plan.incoming.items()}
        done = self.transport.exchange("mix", outgoing, incoming)
        return lambda: [message.from_buffer(part) for part in done().values()]

    def _plan(self, matrix: MixingMatrix) -> MixPlan:
        """The exchange for a matrix, remembered for matrices that come back (the matrix is kept, so its id stays its
        own).
        """
        plans = self._common.plans
        if id(matrix) not in plans:
            if matrix.n != self.n:
                raise ValueError(
                    f"the topology must connect the run's {self.n} workers, got one of {matrix.n}: make both equal"
                )
            if len(plans) > 64:
                plans.clear()
            plans[id(matrix)] = matrix, MixPlan.plan(matrix, self._common.bounds, self.transport.rank)
        return plans[id(matrix)][1]


def _rows(rows: Tensor, indices: list[int]) -> Tensor:
    """Some rows, without a copy where they lie together; row by row is many times faster than by index."""
    if indices[-1] - indices[0] == len(indices) - 1:
        return rows[indices[0] : indices[-1] + 1]
    return torch.cat([rows[i : i + 1] for i in indices])
