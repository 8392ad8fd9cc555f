"""What both libraries train: a small network in float64, on minibatches that step and worker determine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from commeff import DistributedOptimizer, Strategy

WORKERS, STEPS, BATCH = 4, 24, 8
INPUTS, HIDDEN, CLASSES = 12, 16, 4


@dataclass(frozen=True)
class Compared:
    """A method of ours beside another library's.

    Attributes
    ----------
    library, ours, theirs : the library, and the method as it is written in each.
    difference : the largest over workers and coordinates, relative to how far parameters have moved; None: not run.
    limit : the difference above which they are not the same.
    remark : what must be set alike for that, or why it was not run.
    """

    library: str
    ours: str
    theirs: str
    difference: float | None
    limit: float
    remark: str

    @property
    def verdict(self) -> str:
        """The verdict in a word."""
        if self.difference is None:
            return "not run"
        return "the same" if self.difference <= self.limit else "differs"


def network() -> nn.Sequential:
    """12-16-16-4, equal at every call, with a module of weights for each of two fragments."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh())
        second = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))
        return nn.Sequential(first, second).double()


def loss(model: nn.Module, step: int, worker: int) -> Tensor:
    """The loss of a worker's minibatch of a step; workers see data of different means."""
    generator = torch.Generator().manual_seed(1000 * step + worker)
    inputs = torch.randn(BATCH, INPUTS, generator=generator, dtype=torch.float64) + 0.3 * worker
    return F.cross_entropy(model(inputs), torch.randint(CLASSES, (BATCH,), generator=generator))


def train(model: nn.Module, optimizer: Any, after: Callable[[], Any] = lambda: None) -> Tensor:
    """This process's parameters after the loop that everybody writes; `after` follows each step of the optimizer."""
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model, step, dist.get_rank()).backward()
        optimizer.step()
        after()
    return flat(model)


def trained(strategy: Strategy, prepare: Callable[[DistributedOptimizer], Any] = lambda optimizer: None) -> Tensor:
    """This worker's parameters, by a method of ours; `prepare` is given the optimizer before the first step."""
    model = network()
    optimizer = DistributedOptimizer(model, strategy)
    prepare(optimizer)
    return train(model, optimizer)


def flat(model: nn.Module) -> Tensor:
    """All parameters as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def difference(x: Tensor, reference: Tensor) -> float:
    """The largest difference of all workers, relative to the largest move from the start; every process calls it."""
    distances = torch.stack([(x - reference).abs().max(), (reference - flat(network())).abs().max()])
    dist.all_reduce(distances, dist.ReduceOp.MAX)
    return float(distances[0] / distances[1])
