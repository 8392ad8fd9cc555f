"""Whose a saved state is: a process may only go on with its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Layout


def origin(communicator: Communicator, layout: Layout) -> dict[str, Any]:
    """Of a state: its worker and their number; name, end and group of each tensor that the process updates."""
    return {
        "worker": [communicator.workers[0], communicator.n],
        "layout": [[field.name, field.stop, field.group] for field in layout.fields],
    }


def compare(
    state: Mapping[str, Any], here: Mapping[str, Any], parameters: Tensor, buffers: Mapping[str, Tensor]
) -> None:
    """Refuse a state that is not of this process, before anything is restored.

    Parameters
    ----------
    state : dict
        The saved one.
    here : dict
        The `origin` of this process's.
    parameters, buffers : Tensor, dict of str to Tensor
        What it would be restored into.
    """
    if "strategy" not in state:
        raise ValueError(
            f"the state must be of a DistributedOptimizer, got {', '.join(map(str, state))}: that of another "
            "optimizer has no parameters and no method in it"
        )
    (mine, n), (its, saved) = here["worker"], state.get("worker", here["worker"])
    if (mine, n) != (its, saved):
        raise ValueError(
            f"the state must be that of worker {mine} of {n}, got that of worker {its} of {saved}: a worker has "
            "parameters and memories of its own; save at every rank, into a file of its own"
        )
    same = state.get("layout", here["layout"]) == here["layout"] and state["buffers"].keys() == buffers.keys()
    if not same or state["parameters"].shape != parameters.shape:
        raise ValueError(
            "the state must be of these parameters, buffers and groups, got others: make the optimizer with the "
            "model and the groups= that it was saved with"
        )
