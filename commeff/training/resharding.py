"""Resharding: the state of a run on several processes as one state, with the rows of all workers, and back.

A checkpoint holds the whole, so that a run can go on with another number of processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from commeff.communicator import Communicator

ROWS = ("rows", "replicas", "losses")  # under these names tensors have a leading worker axis


def gather_rows(state: dict[str, Any], communicator: Communicator) -> dict[str, Any] | None:
    """The state with all workers' rows, in their order, at rank 0; None elsewhere. Every process calls it."""
    own: list[Tensor] = []
    _changed(state, own.append)
    everybody = communicator.transport.gather([rows.cpu() for rows in own])
    if everybody is None:
        return None
    whole = iter([torch.cat(parts) for parts in zip(*everybody, strict=True)])
    return _changed(state, lambda rows: next(whole))


def shard_rows(state: dict[str, Any], communicator: Communicator) -> dict[str, Any]:
    """The part of a whole state that this process hosts. A server's row stays: `load_state_dict` drops it elsewhere."""
    if communicator.transport.size == 1:
        return state
    first, last = communicator.workers[0], communicator.workers[-1]

    def own(rows: Tensor) -> Tensor:
        return rows[first : last + 1] if len(rows) == communicator.n else rows

    return _changed(state, own)


def to_device(state: Any, device: torch.device) -> Any:
    """The state with its tensors on a device."""
    if isinstance(state, Tensor):
        return state.to(device)
    if type(state) is dict:
        return {name: to_device(value, device) for name, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(to_device(value, device) for value in state)
    return state  # a schedule's Counter, say


def _changed(node: Any, change: Callable[[Tensor], Any], inside: bool = False) -> Any:
    if isinstance(node, dict):
        return {name: _changed(value, change, inside or name in ROWS) for name, value in node.items()}
    return change(node) if inside and isinstance(node, Tensor) else node
