"""How messages reach those who need them: the mean of all at everybody, all of them, and a server's up and down.

A *summable* message may be added part by part on the way, so it can travel through anything that adds. Other messages
(top-k, signs, quantised) have to reach everybody one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from commeff import require
from commeff.communicator.wire.transport import Transport
from commeff.compressors import Message

Mean = Callable[[], Tensor]  # waits, and gives the mean as one row (1, d)


class Collective(ABC):
    """A way to the mean of all n messages.

    Attributes
    ----------
    kind : str
        Its name in the ledger.
    """

    kind: str

    @abstractmethod
    def wire(self, n: int) -> float:
        """Messages' worth of bytes that a worker sends, in the mean over n workers."""

    @abstractmethod
    def post(self, message: Message, n: int, bounds: list[int], transport: Transport) -> Mean:
        """Begin; worker ids bounds[r] .. bounds[r + 1] - 1 live at process r."""


class AllGather(Collective):
    """Every message reaches everybody, who averages: (n - 1) messages' worth each."""

    kind = "all_gather"

    def wire(self, n: int) -> float:
        return n - 1

    def post(self, message: Message, n: int, bounds: list[int], transport: Transport) -> Mean:
        arrived = everybody(message, bounds, transport)
        return lambda: mean(arrived())


class Sum(Collective):
    """The mean of the hosted rows' parts is added up over the processes, in the dtype in which they travel: a 16-bit
    all-reduce rounds.

    Processes divide before they add, so that nothing overflows, and one process that hosts all rows afterwards: in 16
    bits the two may differ by a unit in the last place. A model that is split has the mean of the whole one on as many
    processes, bit by bit. However it travels, a worker sends 2 (n - 1) / n messages' worth in the mean.
    """

    def wire(self, n: int) -> float:
        return 2 * (n - 1) / n

    def post(self, message: Message, n: int, bounds: list[int], transport: Transport) -> Mean:
        if not message.summable:
            raise ValueError(
                f"collective={self.kind} needs messages that sum, got compressed ones of kind "
                f"{type(message).__name__}: it adds them on the way; choose collective=all_gather, or auto"
            )
        if n == transport.size == 1:
            return message.decode
        shares = [_share(part, n) for part in message.parts]
        if transport.size == 1:
            return message.with_parts(tuple(shares)).decode
        waits = [self.total(share, transport) for share in shares]
        return lambda: message.with_parts(tuple(wait() for wait in waits)).decode()

    @abstractmethod
    def total(self, share: Tensor, transport: Transport) -> Callable[[], Tensor]:
        """The sum of everybody's tensor, which may be written into; there are several processes."""


class AllReduce(Sum):
    """The all-reduce of the process group's own choice: 2 (n - 1) / n messages' worth each."""

    kind = "all_reduce"

    def total(self, share: Tensor, transport: Transport) -> Callable[[], Tensor]:
        return transport.sum(share)


class Ring(Sum):
    """n - 1 rounds in which everybody sends an n-th part to the right and adds what comes from the left, and n - 1 in
    which the finished parts go round: 2 (n - 1) / n messages' worth each.
    """

    kind = "ring"

    def total(self, share: Tensor, transport: Transport) -> Callable[[], Tensor]:
        size, rank = transport.size, transport.rank
        flat = share.view(-1)
        parts = [flat[len(flat) * r // size : len(flat) * (r + 1) // size] for r in range(size)]

        def send(round: int, adding: bool) -> Callable[[], None]:
            outgoing, left = parts[(rank - round + (not adding)) % size], (rank - 1) % size
            place = parts[(rank - round - adding) % size]
            done = transport.exchange(self.kind, {(rank + 1) % size: outgoing}, {left: torch.empty_like(place)})

            def wait() -> None:
                received = done()[left]
                place.add_(received) if adding else place.copy_(received)

            return wait

        first = send(0, adding=True)

        def wait() -> Tensor:
            first()
            for round in range(1, size - 1):
                send(round, adding=True)()
            for round in range(size - 1):
                send(round, adding=False)()
            return share

        return wait


class Tree(Sum):
    """Up a binomial tree to process 0, adding, and down again: log2(n) rounds each way, 2 (n - 1) / n messages' worth
    each in the mean. Nothing is sent before the result is waited for.
    """

    kind = "tree"

    def total(self, share: Tensor, transport: Transport) -> Callable[[], Tensor]:
        size, rank = transport.size, transport.rank
        span = 1
        while rank % (2 * span) == 0 and span < size:
            span *= 2
        parent = None if rank == 0 else rank - span
        children = [rank + step for step in _powers(span) if rank + step < size]

        def wait() -> Tensor:
            below = [transport.exchange(self.kind, {}, {child: torch.empty_like(share)}) for child in children]
            for child, arrived in zip(children, below, strict=True):
                share.add_(arrived()[child])
            if parent is not None:
                transport.exchange(self.kind, {parent: share}, {})()
                share.copy_(transport.exchange(self.kind, {}, {parent: torch.empty_like(share)})()[parent])
            transport.exchange(self.kind, dict.fromkeys(reversed(children), share), {})()
            return share

        return wait


class Server(Sum):
    """Everybody sends to process 0, which answers everybody: 2 (n - 1) / n messages' worth each in the mean, all of it
    over one link.
    """

    kind = "server"

    def total(self, share: Tensor, transport: Transport) -> Callable[[], Tensor]:
        if transport.rank:
            wait = transport.exchange(self.kind, {0: share}, {})

            def receive() -> Tensor:
                wait()
                return share.copy_(transport.exchange(self.kind, {}, {0: torch.empty_like(share)})()[0])

            return receive
        incoming = {rank: torch.empty_like(share) for rank in range(1, transport.size)}
        arrived = transport.exchange(self.kind, {}, incoming)

        def answer() -> Tensor:
            for values in arrived().values():
                share.add_(values)
            transport.exchange(self.kind, dict.fromkeys(incoming, share), {})()
            return share

        return answer


ALL_REDUCE: Final = AllReduce()
ALL_GATHER: Final = AllGather()
EACH: tuple[Collective, ...] = (ALL_REDUCE, Ring(), Tree(), ALL_GATHER, Server())
COLLECTIVES: Mapping[str, Collective | None] = {"auto": None, **{entry.kind: entry for entry in EACH}}


def collective(name: str) -> Collective | None:
    """The collective of that name; None for "auto", which adds what sums and gathers the rest."""
    return require.choose(COLLECTIVES, collective=name)


def everybody(message: Message, bounds: list[int], transport: Transport) -> Callable[[], Message]:
    """Posts the hosted messages to all; gives all n in worker order."""
    if transport.size == 1:
        return lambda: message
    rows = transport.all_gather(message.to_buffer(), [stop - start for start, stop in pairwise(bounds)])
    return lambda: message.from_buffer(rows())


def mean(message: Message) -> Tensor:
    """(1, d): the mean of the rows of a message."""
    out = torch.zeros(1, message.d, dtype=message.dtype, device=message.parts[0].device)
    message.add_to(out, out.new_full((1, message.rows), 1 / message.rows))
    return out


def post_up(message: Message, bounds: list[int], host: int, transport: Transport) -> Callable[[], Tensor]:
    """Sends the hosted messages to the server; gives the mean of all there, (1, d), and no rows elsewhere."""
    at_host = transport.rank == host
    rows = message.to_buffer() if transport.size > 1 else torch.empty(0)
    others = [rank for rank in range(transport.size) if rank != host and at_host and bounds[rank + 1] > bounds[rank]]
    incoming = {rank: rows.new_empty(bounds[rank + 1] - bounds[rank], message.row_bytes) for rank in others}
    done = transport.exchange("to_server", {} if at_host or not message.rows else {host: rows}, incoming)

    def wait() -> Tensor:
        arrived = done()
        if not at_host:
            return torch.empty(0, message.d, dtype=message.dtype, device=message.parts[0].device)
        everything = [rows if rank == host else arrived[rank] for rank in sorted({host, *others})]
        return mean(message.from_buffer(torch.cat(everything)) if others else message)

    return wait


def post_down(message: Message, host: int, transport: Transport) -> Callable[[], Tensor]:
    """Sends the server's message to all processes; gives what it says, (1, d)."""
    if transport.rank == host:
        answer = message.to_buffer() if transport.size > 1 else torch.empty(0)
        done = transport.exchange("from_server", {r: answer for r in range(transport.size) if r != host}, {})
    else:
        answer = torch.empty(1, message.row_bytes, dtype=torch.uint8, device=message.parts[0].device)
        done = transport.exchange("from_server", {}, {host: answer})

    def wait() -> Tensor:
        received = done()
        return (message if transport.rank == host else message.from_buffer(received[host].clone())).decode()

    return wait


def _share(part: Tensor, n: int) -> Tensor:
    """(1, ...): what the hosted rows contribute to the mean over n, in memory of its own."""
    if len(part) == 1:
        return part / n
    if not len(part):
        return part.new_zeros(1, *part.shape[1:])
    share = part.mean(0, keepdim=True)
    return share if len(part) == n else share.mul_(len(part) / n)


def _powers(span: int) -> list[int]:
    """1, 2, 4, ... below span.

    >>> _powers(8), _powers(1)
    ([1, 2, 4], [])
    """
    return [1 << k for k in range(span.bit_length() - 1)]
