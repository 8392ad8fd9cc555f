"""What checkpoints hold, for tests to look at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from commeff.boxes import Boxes


def tensors(state: dict[str, Any] | None) -> dict[str, Tensor]:
    """The tensors of a checkpoint, by name, each put together from all its boxes."""
    assert state is not None
    return {name: Boxes(*boxes).whole() for name, boxes in state["tensors"].items()}


def parameters(state: dict[str, Any] | None) -> Tensor:
    """(n, d): the parameters of all workers in a checkpoint of whole ones."""
    found = [rows for name, rows in tensors(state).items() if name.startswith("model/")]
    return torch.cat([rows.flatten(1) for rows in found], 1)
