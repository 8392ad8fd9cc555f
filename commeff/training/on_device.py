"""A task whose models and batches lie on another device than its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from commeff.sharding import score
from commeff.sharding.computation import Scored, Scores
from commeff.training.task import LabelledTask, Task


class OnDevice:
    """The task, computed on a device: models and batches are made where its data are and moved there.

    It has whatever else its task has: every protocol of the task is its own.

    >>> from commeff.experiments.tasks import Digits
    >>> task = OnDevice(Digits(2, seed=0), "meta")
    >>> {tensor.device.type for tensor in (*task.model().parameters(), *task.batch(0, [1]))}
    {'meta'}
    """

    workers: int
    size: int
    loss: Callable[..., Tensor]

    def __new__(cls, task: Task, device: torch.device | str) -> Self:
        """An object of a class with the task's names: `isinstance` looks for those of a protocol in the class."""
        names = [name for name in dir(task) if not (name.startswith("_") or hasattr(cls, name))]
        members: dict[str, Any] = {name: property(attrgetter(f"_task.{name}")) for name in names}
        if isinstance(task, LabelledTask):
            members["with_liars"] = lambda self, liars: cls(task.with_liars(liars), device)
        return object.__new__(type(cls.__name__, (cls,), members))

    def __init__(self, task: Task, device: torch.device | str) -> None:
        self._task, self._device = task, torch.device(device)

    def model(self) -> nn.Module:
        """A fresh model on the device."""
        return self._task.model().to(self._device)

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor, ...]:
        """The minibatches of these workers, on the device."""
        moved: tuple[Tensor, ...] = _moved(self._task.batch(step, workers), self._device)
        return moved

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The task's, of a model on the device."""
        return self._task.evaluate(_There(model, self._device))

    def test(self, model: nn.Module) -> dict[str, float]:
        """The task's, of a model on the device."""
        return self._task.test(_There(model, self._device))

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """The task's, on the device."""
        return (_moved(batch, self._device) for batch in self._task.calibration())


class _There(Scored):
    """A model on a device, for callers whose tensors are on the CPU."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.model, self._device = model, device

    def forward(self, *inputs: Tensor) -> Tensor:
        outputs: Tensor = self.model(*_moved(inputs, self._device))
        return outputs.cpu()

    def score(self, scores: Scores, inputs: tuple[Tensor, ...], targets: Any) -> Tensor:
        """As `commeff.sharding.score`: outputs stay on the device."""
        return score(self.model, scores, *_moved((inputs, targets), self._device)).cpu()


def _moved(tree: Any, device: torch.device) -> Any:
    """The tensors on a device: to a GPU from pinned memory, so that the host does not wait for the copies."""

    def move(part: Tensor) -> Tensor:
        pinned = part.pin_memory() if device.type == "cuda" and part.device.type == "cpu" else part
        return pinned.to(device, non_blocking=True)

    return tree_map_only(Tensor, move, tree)
