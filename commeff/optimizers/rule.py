"""What every optimizer of this room shares: the loop over parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer


class Rule(Optimizer, ABC):
    """An optimizer that is one update of one tensor, with no closure and no sparse gradients.

    Attributes
    ----------
    elementwise : bool
        Whether a coordinate moves by its own past alone, so that one tensor may hold many workers' coordinates.
    """

    elementwise: ClassVar[bool] = True

    @abstractmethod
    def remember(self, x: Tensor) -> dict[str, Tensor]:
        """The memory of a parameter, before its first step."""

    @abstractmethod
    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        """Move x, in place, and the memory; the gradient is read only."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        if closure is not None:
            raise ValueError(f"{type(self).__name__} takes one gradient a step, got a closure: call backward yourself")
        for group in self.param_groups:
            for x in group["params"]:
                if x.grad is not None:
                    memory = self.state[x]
                    if not memory:
                        memory.update(self.remember(x))
                    self.update(x, x.grad, memory, group)


def zeros(x: Tensor) -> Tensor:
    """Zeros of this shape, without gaps in memory."""
    return torch.zeros_like(x, memory_format=torch.contiguous_format)


def advance(memory: dict[str, Any]) -> int:
    """Count a step; gives its number, from 1."""
    memory["step"] += 1
    return int(memory["step"])
