"""A task whose models and batches lie on another device than its data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from commeff.parallelism import Axis, Plan
from commeff.training.task import SplitTask, Task


class OnDevice:
    """The task, computed on a device: models and batches are made where its data are and moved there.

    >>> from commeff.experiments.tasks import Digits
    >>> task = OnDevice(Digits(2, seed=0), "meta")
    >>> {tensor.device.type for tensor in (*task.model().parameters(), *task.batch(0, [1]))}
    {'meta'}
    """

    def __init__(self, task: Task, device: torch.device | str) -> None:
        self._task, self.device = task, torch.device(device)
        self.workers, self.size = task.workers, task.size

    def model(self) -> nn.Module:
        """A fresh model on the device."""
        return self._task.model().to(self.device)

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor, ...]:
        """The minibatches of these workers, on the device."""
        return tuple(part.to(self.device) for part in self._task.batch(step, workers))

    def loss(self, model: Any, *batch: Tensor) -> Tensor:
        """The task's."""
        return self._task.loss(model, *batch)

    def inputs_targets(self, *batch: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        """The task's."""
        return cast(SplitTask, self._task).inputs_targets(*batch)

    def criterion(self, outputs: Tensor, targets: Any, vocabulary: Axis | None = None) -> Tensor:
        """The task's."""
        return cast(SplitTask, self._task).criterion(outputs, targets, vocabulary)

    def plan(self, model: nn.Module) -> Plan:
        """The task's."""
        return cast(SplitTask, self._task).plan(model)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The task's, of a model on the device."""
        return self._task.evaluate(_There(model, self.device))

    def test(self, model: nn.Module) -> dict[str, float]:
        """The task's, of a model on the device."""
        return self._task.test(_There(model, self.device))

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """The task's, on the device."""
        return (tuple(part.to(self.device) for part in batch) for batch in self._task.calibration())


class _There(nn.Module):
    """A model on a device, for callers whose tensors are on the CPU."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.model, self._device = model, device

    def forward(self, *inputs: Tensor) -> Tensor:
        outputs: Tensor = self.model(*(part.to(self._device) for part in inputs))
        return outputs.cpu()
