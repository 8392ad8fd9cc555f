"""How well a run is doing: the average model, and the workers' own models."""

from __future__ import annotations

import math

import torch

from commeff.communicator import Communicator
from commeff.replicas import Stacked, calibrate, write_row
from commeff.task import Task


def measure(task: Task, replicas: Stacked, communicator: Communicator) -> dict[str, float]:
    """The average model's quality, and how far the workers are from it.

    consensus_distance = sqrt((1/n) sum_i |x_i - mean x|^2).
    """
    mean = communicator.observe(replicas.parameters).to(replicas.parameters)
    squares = (replicas.parameters - mean).square().sum(1)
    model = calibrate(write_row(task.model(), mean, replicas.layout), task.calibration())
    return task.evaluate(model) | {"consensus_distance": math.sqrt(float(communicator.observe(squares)))}


def measure_locals(task: Task, replicas: Stacked, communicator: Communicator) -> dict[str, float]:
    """The workers' own models, each with its own BatchNorm statistics: means over workers, named local_*."""
    each = [task.evaluate(model) for model in replicas.models]
    means = communicator.observe(torch.tensor([list(row.values()) for row in each], dtype=torch.float64))
    return {f"local_{name}": float(mean) for name, mean in zip(each[0], means, strict=True)}
