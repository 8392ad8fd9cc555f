"""A small model, its data, and a training loop, for laws of the drop-ins."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
ADAMW = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.5)


def net(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 2)).double()


def inputs(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + torch.distributed.get_rank())
    return torch.randn(8, 5, generator=generator).double()


def loss(model: Any, step: int) -> Tensor:
    out: Tensor = model(inputs(step)).square().mean()
    return out


def train(model: Any, optimizer: Optimizer, steps: int, start: int = 0, scheduler: Any = None) -> None:
    for step in range(start, start + steps):
        optimizer.zero_grad()
        loss(model, step).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def row(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def complaint(act: Any) -> str:
    """What is said when something is refused."""
    try:
        act()
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "fine"
