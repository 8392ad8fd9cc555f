"""Evaluation: how well the average model and the workers' own models do, and their distance.

The average model stands for all workers: averaged parameters, with statistics re-estimated on training data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.replicas import Stacked
from commeff.training.task import Task


def write_row(model: nn.Module, row: Tensor, layout: Layout) -> nn.Module:
    """Copy a flat (d,) row into the parameters of a model with this layout."""
    with torch.no_grad():
        named = dict(model.named_parameters())  # by name: an evaluation copy may have frozen them
        for field in layout.fields:
            named[field.name].copy_(row[field.start : field.stop].view(field.shape))
    return model


def calibrate(model: nn.Module, batches: Iterable[tuple[Tensor, ...]]) -> nn.Module:
    """Re-estimate the running statistics of every BatchNorm as the plain average over the given training inputs.

    The average of the workers' running statistics is not what the averaged network would see; this is.
    """
    norms = [
        part
        for part in model.modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats
    ]
    if not norms:
        return model
    momenta = [part.momentum for part in norms]
    for part in norms:
        part.reset_running_stats()
        part.momentum = None
    training = model.training
    model.eval()
    for part in norms:
        part.train()
    with torch.no_grad():
        for batch in batches:
            model(*batch)
    model.train(training)
    for part, momentum in zip(norms, momenta, strict=True):
        part.momentum = momentum
    return model


def average_model(task: Task, replicas: Stacked, communicator: Communicator) -> tuple[nn.Module, Tensor]:
    """The model with averaged parameters and re-estimated BatchNorm statistics, and its (d,) parameters."""
    mean = communicator.observe(replicas.parameters).to(replicas.parameters)
    return calibrate(write_row(task.model(), mean, replicas.layout), task.calibration()), mean


def measure(task: Task, replicas: Stacked, communicator: Communicator) -> dict[str, float]:
    """The average model's quality, and how far the workers are from it.

    consensus_distance = sqrt((1/n) sum_i |x_i - mean x|^2).
    """
    model, mean = average_model(task, replicas, communicator)
    squares = (replicas.parameters - mean).square().sum(1)
    return task.evaluate(model) | {"consensus_distance": math.sqrt(float(communicator.observe(squares)))}


def measure_final(task: Task, replicas: Stacked, communicator: Communicator) -> dict[str, float]:
    """What is measured once, at the end: the average model on test data, the workers' own models, the yardsticks."""
    model, mean = average_model(task, replicas, communicator)
    return (
        task.test(model) | measure_locals(task, replicas, communicator) | yardsticks(task, float(mean.double().norm()))
    )


def yardsticks(task: Task, norm: float) -> dict[str, float]:
    """What the end of a run is held against; see `commeff.training.verdict`.

    `start_loss` is the loss of the initial model, `parameter_norm` the larger of two norms: of the initial parameters,
    and of the average model's, `norm`.
    """
    model = calibrate(task.model(), task.calibration())
    initial = math.sqrt(sum(float(value.detach().double().square().sum()) for value in model.parameters()))
    quality = task.evaluate(model)
    loss = quality.get("val_loss", quality.get("train_loss"))
    return {"parameter_norm": max(norm, initial)} | ({} if loss is None else {"start_loss": loss})


def measure_locals(task: Task, replicas: Stacked, communicator: Communicator) -> dict[str, float]:
    """The workers' own models, each with its own BatchNorm statistics: means over workers, named local_*."""
    x = replicas.parameters
    alike = not replicas.buffers and bool((x == x[0]).all())  # one stands for all
    each = [task.evaluate(model) for model in replicas.models[: 1 if alike else None]] * (len(x) if alike else 1)
    means = communicator.observe(torch.tensor([list(row.values()) for row in each], dtype=torch.float64))
    return {f"local_{name}": float(mean) for name, mean in zip(each[0], means, strict=True)}
