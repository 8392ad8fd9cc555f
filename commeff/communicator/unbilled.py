"""What processes tell each other beside the method: measurements, votes and states, which the ledger does not count."""

from __future__ import annotations

from bisect import bisect_right
from math import prod
from typing import Any

import torch
from torch import Tensor

from commeff.communicator.communicator import Communicator, Handle
from commeff.communicator.wire.records import broadcast_state
from commeff.compressors.scratch import bands


def observe(communicator: Communicator, rows: Tensor) -> Tensor:
    """The mean of (w, ...) rows over all workers in float64.

    >>> observe(Communicator(workers=2), torch.tensor([[1.0], [4.0]]))
    tensor([2.5000], dtype=torch.float64)
    """
    return post_observe(communicator, rows).wait()


def post_observe(communicator: Communicator, rows: Tensor) -> Handle[Tensor]:
    """`observe`, begun now."""
    transport = communicator.transport
    counts = transport.sent.copy()
    arrived = transport.sum(_total(rows.to(communicator.context.device)))
    transport.sent = counts
    return Handle(lambda: arrived().div_(communicator.n))


def broadcast(communicator: Communicator, state: Any, source: int | None = None) -> Any:
    """The state that one process gives, at every process.

    Parameters
    ----------
    communicator : Communicator
        Whose processes get it.
    state : nested dicts and lists of tensors and plain values
        What the source gives; the others' is not looked at.
    source : int, optional
        A worker of the process that gives it; that of the server's row unless given.
    """
    if communicator.transport.size == 1:
        return state
    host = bisect_right(communicator._hosts, communicator._home if source is None else source) - 1
    return broadcast_state(state, communicator.transport.group, host)


def barrier(communicator: Communicator) -> None:
    """Wait until all processes are here."""
    if communicator.transport.size > 1:
        observe(communicator, torch.zeros(len(communicator.workers)))


def _total(rows: Tensor) -> Tensor:
    """The sum of rows (w, ...) in float64, which is no dtype of all of them at once."""
    columns = rows.reshape(len(rows), prod(rows.shape[1:]))
    total = columns.new_empty(columns.shape[1], dtype=torch.float64)
    for band in bands(len(columns), columns.shape[1], columns.device):
        torch.sum(columns[:, band], 0, dtype=torch.float64, out=total[band])
    return total.view(rows.shape[1:])
