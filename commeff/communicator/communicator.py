"""The one communicator: rows hosted here are combined in place, rows hosted elsewhere come over a process group. It
alone bills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from commeff.communicator.ledger import Ledger
from commeff.communicator.mixing import Exchange
from commeff.communicator.transport import Transport
from compressors import Message, WorkerRandom
from topologies import MixingMatrix

SERVER = -1  # the server's id in the keys of its randomness


class Handle:
    """Communication under way; `wait()` gives its result, as often as it is asked."""

    def __init__(self, finish: Callable[[], Tensor]) -> None:
        self._finish = finish
        self._result: Tensor | None = None

    def wait(self) -> Tensor:
        """The result."""
        if self._result is None:
            self._result = self._finish()
        return self._result


@dataclass
class _Common:
    """What every view of one communicator shares."""

    n: int
    seed: int
    transport: Transport
    bounds: list[int]
    step: int = 0
    device: torch.device | str = "cpu"
    active: Tensor | None = None
    ledger: Ledger = field(default_factory=Ledger)
    plans: dict[int, tuple[MixingMatrix, Exchange]] = field(default_factory=dict)


class Communicator:
    """n workers, of which this process hosts some; method code knows no more than that.

    `Communicator(workers=n)` hosts all n: simulation. `Communicator(workers=n, group=group)` on every process of a
    torch.distributed group hosts an equal consecutive share; the server's row is at rank 0.

    Attributes
    ----------
    n : all workers.  workers : ids hosted here.  servers : 1 if the server's row is here, else 0.
    step : the clock, model updates since the start; the driver moves it.  active : (w,) bool, who takes part; None =
    all.
    ledger : what was sent, per worker.  transport : the processes, and the bytes handed to them.

    >>> from compressors import Dense
    >>> communicator = Communicator(workers=2, seed=0)
    >>> v = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    >>> communicator.average(Dense().compress(v, communicator.random("up"))).tolist()
    [[2.0, 4.0], [2.0, 4.0]]
    >>> communicator.ledger.payload_bytes, communicator.ledger.wire_bytes
    (8, 8)
    """

    def __init__(self, workers: int, seed: int = 0, group: Any = None, distributed: bool | None = None) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers were asked for; a run needs at least 1")
        transport = Transport(group, alone=not (group is not None if distributed is None else distributed))
        if transport.size > workers:
            raise ValueError(
                f"{transport.size} processes cannot host {workers} workers; start at most {workers} processes"
            )
        bounds = [workers * r // transport.size for r in range(transport.size + 1)]
        self._common = _Common(workers, seed, transport, bounds)
        self._views: dict[Any, Communicator] = {}
        self.path: tuple[str, ...] = ()
        self._label = ""
        self.start = 0
        self.workers: Sequence[int] = range(bounds[transport.rank], bounds[transport.rank + 1])

    @classmethod
    def per_process(cls, seed: int = 0, group: Any = None) -> Communicator:
        """One worker on each process of a torch.distributed group, the default one unless given."""
        return cls(Transport(group, alone=False).size, seed, group, distributed=True)

    def _view(self, key: Any, path: tuple[str, ...], start: int, workers: Sequence[int]) -> Communicator:
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = object.__new__(Communicator)
            view._common, view._views = self._common, {}
            view.path, view.start, view.workers = path, start, workers
            view._label = "/".join(path)
        return view

    def at(self, name: str) -> Communicator:
        """One level deeper in the path that keys randomness and labels the ledger."""
        return self._view(name, (*self.path, name), self.start, self.workers)

    def columns(self, start: int) -> Communicator:
        """The communicator of a block of columns that begins `start` columns further on: the same stream of
        randomness, moved.
        """
        return self._view(start, self.path, self.start + start, self.workers)

    @property
    def server(self) -> Communicator:
        """A view whose only rows are the server's: its randomness, its rows."""
        return self._view(None, (*self.path, "server"), self.start, (SERVER,) * self.servers)

    @property
    def n(self) -> int:
        """All workers."""
        return self._common.n

    @property
    def seed(self) -> int:
        """The key of all randomness."""
        return self._common.seed

    @property
    def ledger(self) -> Ledger:
        """What was sent, per worker."""
        return self._common.ledger

    @property
    def transport(self) -> Transport:
        """The processes, and the bytes handed to them."""
        return self._common.transport

    @property
    def servers(self) -> int:
        """1 if the server's row is hosted here, else 0."""
        return int(self._common.transport.rank == 0)

    @property
    def step(self) -> int:
        """Model updates since the start; the driver moves it."""
        return self._common.step

    @step.setter
    def step(self, value: int) -> None:
        self._common.step = value

    @property
    def active(self) -> Tensor | None:
        """(w,) bool: who takes part in this step; None = all."""
        return self._common.active

    @active.setter
    def active(self, value: Tensor | None) -> None:
        self._common.active = value

    @property
    def device(self) -> torch.device | str:
        """Where random numbers are made: where the rows are, says `Strategy.start`. They are the same anywhere."""
        return self._common.device

    @device.setter
    def device(self, value: torch.device | str) -> None:
        self._common.device = value

    def random(self, purpose: str) -> WorkerRandom:
        """A stream for each hosted row, keyed by (seed, step, worker, path, purpose): equal on every engine."""
        common = self._common
        return WorkerRandom(common.seed, self.workers, common.step, (*self.path, purpose), self.start, common.device)

    def average(self, message: Message) -> Tensor:
        """(1/n) sum_j decode(m_j), as (w, d); the rows may be views of one row."""
        return self.post_average(message).wait()

    def mix(self, message: Message, matrix: MixingMatrix, out: Tensor | None = None) -> Tensor:
        """sum_j W[i, j] decode(m_j) for every hosted i. out may be the very memory the message was made of."""
        return self.post_mix(message, matrix, out).wait()

    def post_average(self, message: Message) -> Handle:
        """`average`, begun now."""
        summed = message.summable
        fan = 2 * (self.n - 1) / self.n if summed else self.n - 1
        self._bill("all_reduce" if summed else "all_gather", message, wire=fan, messages=min(1, self.n - 1))
        arrived = self._sum(message) if summed else self._everybody(message)
        return Handle(lambda: (arrived().decode() if summed else self._mean(arrived())).expand(len(self.workers), -1))

    def post_mix(self, message: Message, matrix: MixingMatrix, out: Tensor | None = None) -> Handle:
        """`mix`, begun now."""
        plan = self._plan(matrix)
        self._bill("mix", message, wire=plan.out_degree, messages=plan.out_degree, senders=plan.senders)
        arrived = self._receive(message, plan)
        own = message.decode()
        if out is None:
            out = own.clone(memory_format=torch.contiguous_format)
        elif out.data_ptr() != own.data_ptr():
            out.copy_(own)
        plan.local.run(out)

        def wait() -> Tensor:
            received = arrived()
            if received is not None:
                received.add_to(out, plan.weights.to(out))
            return out

        return Handle(wait)

    def gather(self, message: Message) -> Message:
        """All n messages in worker order, at every process."""
        self._bill("all_gather", message, wire=self.n - 1, messages=min(1, self.n - 1))
        return self._everybody(message)()

    def to_server(self, message: Message) -> Tensor:
        """The mean of all messages at the server: (s, d)."""
        self._bill("to_server", message, wire=1, messages=1)
        common, size = self._common, message.row_bytes
        rank, rows = common.transport.rank, message.to_buffer()
        counts = [common.bounds[r + 1] - common.bounds[r] for r in range(common.transport.size)]
        incoming = {r: rows.new_empty(counts[r], size) for r in range(1, common.transport.size) if rank == 0}
        common.transport.exchange("to_server", {0: rows} if rank else {}, incoming)()
        everything = message.from_buffer(torch.cat([rows, *incoming.values()])) if incoming else message
        return self._mean(everything)[: self.servers]

    def from_server(self, message: Message) -> Tensor:
        """The server's message at every worker: (w, d)."""
        self._bill("from_server", message, wire=1, messages=1)
        transport = self.transport
        buffer = (
            message.to_buffer()
            if self.servers
            else torch.empty(1, message.row_bytes, dtype=torch.uint8, device=message.parts[0].device)
        )
        outgoing = dict.fromkeys(range(1, transport.size), buffer) if self.servers else {}
        transport.exchange("from_server", outgoing, {} if self.servers else {0: buffer})()
        arrived = message if self.servers else message.from_buffer(buffer)
        return arrived.decode().expand(len(self.workers), -1)

    def observe(self, rows: Tensor) -> Tensor:
        """The mean of (w, ...) rows over all workers in float64, for measuring and logging: no part of a method, not
        billed.
        """
        sent = self.transport.sent.copy()
        total = self.transport.sum(rows.to(self.device).sum(0, dtype=torch.float64))()
        self.transport.sent = sent
        return total / self.n

    def _bill(self, kind: str, message: Message, *, wire: float, messages: float, senders: float = 1.0) -> None:
        """What somebody else receives is billed; `senders` is the share of workers to whom anybody listens."""
        size, count, common = message.row_bytes, message.count if messages else 0, self._common
        payload = size * senders if messages else 0
        common.ledger.bill(common.step, self._label, kind, payload, wire * size, messages * count, count)

    def _mean(self, message: Message) -> Tensor:
        """(1, d): the mean of the rows of a message."""
        out = torch.zeros(1, message.d, dtype=message.dtype, device=message.parts[0].device)
        message.add_to(out, out.new_full((1, message.rows), 1 / message.rows))
        return out

    def _sum(self, message: Message) -> Callable[[], Message]:
        """Posts the all-reduce of a message whose parts may be added on the way: one row, the mean of all n.

        The parts are averaged in the dtype in which they travel, here as on processes: a 16-bit all-reduce rounds.
        """
        share = message.rows / self.n
        means = [part.mean(0, keepdim=True) for part in message.parts]
        waits = [self.transport.sum(mean if share == 1 else mean * share) for mean in means]
        return lambda: message.with_parts(tuple(wait() for wait in waits))

    def _everybody(self, message: Message) -> Callable[[], Message]:
        if self.transport.size == 1:
            return lambda: message
        bounds = self._common.bounds
        sizes = [stop - start for start, stop in pairwise(bounds)]
        rows = self.transport.all_gather(message.to_buffer(), sizes)
        return lambda: message.from_buffer(rows())

    def _receive(self, message: Message, plan: Exchange) -> Callable[[], Message | None]:
        """Posts what the plan says; gives the messages that come in, in the order of the plan's weights."""
        if not plan.outgoing and not plan.incoming:
            return lambda: None
        rows = message.to_buffer()
        outgoing = {peer: rows[wanted] for peer, wanted in plan.outgoing.items()}
        incoming = {peer: rows.new_empty(count, rows.shape[1]) for peer, count in plan.incoming.items()}
        done = self.transport.exchange("mix", outgoing, incoming)

        def wait() -> Message | None:
            done()
            return message.from_buffer(torch.cat(list(incoming.values()))) if incoming else None

        return wait

    def _plan(self, matrix: MixingMatrix) -> Exchange:
        """The exchange for a matrix, remembered for matrices that come back (the matrix is kept, so its id stays its
        own).
        """
        plans = self._common.plans
        if id(matrix) not in plans:
            if matrix.n != self.n:
                raise ValueError(f"the topology connects {matrix.n} workers but the run has {self.n}; make both equal")
            if len(plans) > 64:
                plans.clear()
            plans[id(matrix)] = matrix, Exchange.plan(matrix, self._common.bounds, self.transport.rank)
        return plans[id(matrix)][1]
