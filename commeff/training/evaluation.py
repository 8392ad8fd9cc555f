"""Evaluation: how well the average model and the workers' own models do, and their distance.

The average model stands for all workers: averaged parameters, with statistics re-estimated on training data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from commeff.communicator import Communicator, observe
from commeff.compressors import Layout
from commeff.compressors.scratch import tile_size
from commeff.core.strategy import Strategy
from commeff.replicas import ShardedWorker, Stacked
from commeff.training.task import Task

Replicas = Stacked | ShardedWorker


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
    momenta, modes = [part.momentum for part in norms], [(module, module.training) for module in model.modules()]
    for part in norms:
        part.reset_running_stats()
        part.momentum = None
    model.eval()
    for part in norms:
        part.train()
    count = 0
    with torch.no_grad():
        for batch in batches:
            model(*batch)
            count += 1
    if not count:
        raise ValueError(
            "calibration must have at least one minibatch, got none: BatchNorm would have no statistics; give training "
            "data, such as a DataLoader, not an iterator that has come to its end"
        )
    for module, mode in modes:
        module.training = mode
    for part, momentum in zip(norms, momenta, strict=True):
        part.momentum = momentum
    return model


@contextmanager
def at_result(replicas: Replicas, strategy: Strategy, communicator: Communicator) -> Iterator[None]:
    """A context in which the replicas hold what is to be evaluated, where that is not what they are trained at."""
    if not strategy.evaluates_elsewhere:
        yield
        return
    trained = replicas.parameters.clone()
    replicas.load(strategy.evaluated(trained, communicator))
    try:
        yield
    finally:
        replicas.load(trained)


def measure(task: Task, replicas: Replicas, communicator: Communicator) -> dict[str, float]:
    """The quality of the average model with re-estimated BatchNorm statistics, and how far the workers are from it.

    consensus_distance = sqrt((1/n) sum_i |x_i - mean x|^2).
    """
    with replicas.averaged(communicator) as (model, mean):
        quality = task.evaluate(calibrate(model, task.calibration()))
    some = max(1, tile_size(mean.device) // mean.shape[1])
    parts = [replicas.layout.row_sum((x - mean).square_()) for x in replicas.parameters.split(some)]
    squares = torch.cat(parts)
    return quality | {"consensus_distance": math.sqrt(float(observe(communicator, squares)))}


def measure_final(
    task: Task, replicas: Replicas, communicator: Communicator, began: Mapping[str, float]
) -> dict[str, float]:
    """What is measured once, at the end: the average model on test data, the workers' own models, the yardsticks.

    `began` is what `yardsticks` said of the initial model, if it was asked then.
    """
    with replicas.averaged(communicator) as (model, mean):
        quality = task.test(calibrate(model, task.calibration()))
    began = began or yardsticks(task, task.model())
    norm = max(began["parameter_norm"], _norm(mean, replicas.layout))
    return quality | measure_locals(task, replicas, communicator) | {**began, "parameter_norm": norm}


def _norm(row: Tensor, layout: Layout) -> float:
    return math.sqrt(float(layout.row_sum(row.detach().double().square())))


def yardsticks(task: Task, initial: nn.Module, norm: float | None = None) -> dict[str, float]:
    """What the end of a run is held against; see `commeff.training.divergence`.

    `start_loss` is the loss of the initial model, `parameter_norm` the norm of its parameters, unless that is given.
    At the end, it is the larger one of this norm and of the average model's.
    """
    quality = task.evaluate(calibrate(initial, task.calibration()))
    if norm is None:
        norm = math.sqrt(sum(float(value.detach().double().square().sum()) for value in initial.parameters()))
    loss = quality.get("val_loss", quality.get("train_loss"))
    return {"parameter_norm": norm} | ({} if loss is None else {"start_loss": loss})


def yardsticks_of_pieces(task: Task, worker: ShardedWorker, communicator: Communicator) -> dict[str, float]:
    """The same before the first step of workers in pieces: at the end nobody could make their initial model anew."""
    with worker.uncounted(), worker.averaged(communicator) as (model, mean):
        return yardsticks(task, model, _norm(mean, worker.layout))


def measure_locals(task: Task, replicas: Replicas, communicator: Communicator) -> dict[str, float]:
    """The workers' own models, each with its own BatchNorm statistics: means over workers, named local_*."""
    x = replicas.parameters
    alike = not replicas.buffers and all(torch.equal(row, x[0]) for row in x)  # one stands for all
    rows = [task.evaluate(model) for model in replicas.models[: 1 if alike else None]] * (len(x) if alike else 1)
    means = observe(communicator, torch.tensor([list(row.values()) for row in rows], dtype=torch.float64))
    return {f"local_{name}": float(mean) for name, mean in zip(rows[0], means, strict=True)}
