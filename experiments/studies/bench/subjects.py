"""What benches time: two small models, random images, the loop that everybody writes, and the trainer's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from commeff import Communicator, DistributedOptimizer, Strategy
from commeff.experiments.tasks.images import ImageSet
from commeff.experiments.tasks.models import ARCHITECTURES, NetworkSettings
from commeff.experiments.tasks.supervised import Samples
from commeff.experiments.tasks.vision import Vision
from commeff.replicas import Stacked
from commeff.replicas.stacked import Loss

Step = Callable[[], Tensor]

CLASSES, IMAGES = 10, 2048
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


def mlp(*widths: int) -> nn.Module:
    """An MLP of linear layers of these widths, a ReLU behind each, and ten classes.

    >>> sum(p.numel() for p in mlp(512, 1024, 1024, 1024).parameters())
    2634762
    """
    hidden = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], CLASSES))


def resnet20() -> nn.Module:
    """ResNet-20 of 32 x 32 images, with GroupNorm: only DDP would send BatchNorm's statistics."""
    chosen = ARCHITECTURES["resnet20"]
    return chosen.build(NetworkSettings(channels=3, size=32, classes=CLASSES, width=chosen.width, norm="group"))


SUBJECTS = (
    TimedModel("MLP of 2.6 M", partial(mlp, 512, 1024, 1024, 1024), (32, 512)),
    TimedModel("ResNet-20", resnet20, (16, 3, 32, 32)),
)


def noise(
    model: str, workers: int, norm: str, batch: int = 16, augment: str = "none", dtype: str = "float32"
) -> Vision:
    """Random images of 32 x 32 pixels with random labels, which cost what real ones do."""
    pixels = torch.randint(256, (IMAGES, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    samples, half = Samples(pixels, torch.arange(IMAGES) % CLASSES), (0.5, 0.5, 0.5)
    return Vision(
        ImageSet("noise", tuple(map(str, range(CLASSES))), samples, samples, half, half, validation=samples),
        workers=workers,
        seed=0,
        model=model,
        norm=norm,
        batch=batch,
        partition="iid",
        augment=augment,
        probe=None,
        dtype=dtype,
    )


def loop(
    model: Callable[[Tensor], Tensor],
    optimizer: Optimizer | DistributedOptimizer,
    batch: tuple[Tensor, Tensor],
    average: Callable[[], None] = lambda: None,
) -> Step:
    """A step of the loop that everybody writes; it returns the loss.

    Parameters
    ----------
    model, optimizer, batch : what is trained, how, and on what.
    average : called between backward and update.
    """
    inputs, targets = batch

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        average()
        optimizer.step()
        return loss.detach()

    return step


def library(
    replicas: Stacked, strategy: Strategy, loss: Loss, batches: Iterator[tuple[Tensor, ...]]
) -> Callable[[], None]:
    """A step as the trainer takes it, on the next batch."""
    communicator = Communicator(workers=len(replicas.models))
    strategy.start(replicas.parameters, replicas.layout, communicator)

    def step() -> None:
        gradients, _ = replicas.compute(loss, [next(batches)], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradients, communicator, donate=True))
        communicator.step += 1

    return step
