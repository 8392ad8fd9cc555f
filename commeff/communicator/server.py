"""Up to the process that hosts the server's row, and down from it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from commeff.communicator.collectives import mean
from commeff.communicator.wire.transport import Transport
from commeff.compressors import Message


def post_up(message: Message, bounds: list[int], host: int, transport: Transport) -> Callable[[], Tensor]:
    """Sends the hosted messages to the server; gives the mean of all there, (1, d), and no rows elsewhere."""
    here = transport.rank == host
    rows = message.to_buffer() if transport.size > 1 else torch.empty(0)
    others = [rank for rank in range(transport.size) if rank != host and here and bounds[rank + 1] > bounds[rank]]
    incoming = {rank: rows.new_empty(bounds[rank + 1] - bounds[rank], message.row_bytes) for rank in others}
    done = transport.exchange("to_server", {} if here or not message.rows else {host: rows}, incoming)

    def wait() -> Tensor:
        arrived = done()
        if not here:
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
