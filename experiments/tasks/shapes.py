"""Models of shapes alone: no memory, no numbers, and nothing drawn that nobody will read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

DRAWS = ("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_", "geometric_", "log_normal_")


class _Undrawn(TorchFunctionMode):
    """Skips initial draws of tensors on the meta device: torch imports its compiler for them, which takes a second."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensor = args[0] if args else (kwargs or {}).get("tensor")
        drawn = getattr(function, "__module__", "") == "torch.nn.init" or getattr(function, "__name__", "") in DRAWS
        if drawn and isinstance(tensor, Tensor) and tensor.is_meta:
            return tensor
        return function(*args, **(kwargs or {}))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Whatever is made inside lies on the meta device, where it has a shape and takes no memory.

    >>> with shapes_only():
    ...     model = torch.nn.Linear(1 << 20, 1 << 20)
    >>> model.weight.device, model.weight.shape
    (device(type='meta'), torch.Size([1048576, 1048576]))
    """
    with torch.device("meta"), _Undrawn():
        yield
