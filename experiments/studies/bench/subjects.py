"""Two small models that processes of this machine are timed on, and the loop that everybody writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from commeff import DistributedOptimizer
from commeff.experiments.tasks.models import ARCHITECTURES, NetworkSettings

Step = Callable[[], Tensor]

CLASSES = 10
LR, MOMENTUM = 0.01, 0.9
SGD = partial(torch.optim.SGD, lr=LR, momentum=MOMENTUM)


@dataclass(frozen=True)
class TimedModel:
    """A model, and the inputs of one process's batch.

    Attributes
    ----------
    name : in tables.
    model : makes it.
    inputs : the shape of a batch, samples first.
    """

    name: str
    model: Callable[[], nn.Module]
    inputs: tuple[int, ...]


def mlp() -> nn.Module:
    """An MLP 512-1024-1024-1024-10.

    >>> sum(p.numel() for p in mlp().parameters())
    2634762
    """
    widths = (512, 1024, 1024, 1024)
    hidden = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], CLASSES))


def resnet20() -> nn.Module:
    """ResNet-20 of 32 x 32 images, with GroupNorm: only DDP would send BatchNorm's statistics."""
    chosen = ARCHITECTURES["resnet20"]
    return chosen.build(NetworkSettings(channels=3, size=32, classes=CLASSES, width=chosen.width, norm="group"))


SUBJECTS = (TimedModel("MLP of 2.6 M", mlp, (32, 512)), TimedModel("ResNet-20", resnet20, (16, 3, 32, 32)))


def loop(
    model: nn.Module,
    optimizer: Optimizer | DistributedOptimizer,
    batch: tuple[Tensor, Tensor],
    average: Callable[[], None] = lambda: None,
    minibatches: int = 1,
) -> Step:
    """A step of the loop that everybody writes; it returns the last loss.

    Parameters
    ----------
    model, optimizer, batch : what is trained, how, and on what.
    average : called between backward and update.
    minibatches : backward passes of a step.
    """
    inputs, targets = batch

    def step() -> Tensor:
        optimizer.zero_grad()
        for _ in range(minibatches):
            loss = cross_entropy(model(inputs), targets)
            (loss / minibatches).backward()
        average()
        optimizer.step()
        return loss.detach()

    return step
