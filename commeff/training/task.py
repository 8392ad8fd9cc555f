"""What a run trains: the interface between the trainer and any model and data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol, Self, runtime_checkable

from torch import Tensor, nn

from commeff.sharding import Axis, Layers, Objective, Plan


class Task(Protocol):
    """What is trained, on what, and how well it went.

    Attributes
    ----------
    workers : int
        n, the number of all workers.
    size : int
        The training samples of all workers together, an epoch; 0 where there is no such number.
    """

    workers: int
    size: int

    def model(self) -> nn.Module:
        """A fresh model, the same at every call."""

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor, ...]:
        """The minibatches (w, b, ...) of these workers: a pure function of its arguments and the task's seed."""

    def loss(self, model: Any, *batch: Tensor) -> Tensor:
        """The mean loss of one worker's minibatch (b, ...)."""

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """`train_loss`, `val_loss`, `val_accuracy`, whichever apply.

        A model on several ranks, when it is called, gives whole outputs to all of them; see `commeff.sharding.score`.
        """

    def test(self, model: nn.Module) -> dict[str, float]:
        """`test_loss`, `test_accuracy` on data that nothing was chosen by; {} where there is none."""

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """Training inputs on which BatchNorm statistics are re-estimated."""


@runtime_checkable
class PartitionedTask(Task, Protocol):
    """A task that knows how many training samples each worker has."""

    @property
    def sizes(self) -> Sequence[int]:
        """The training samples of each worker, (n,)."""


@runtime_checkable
class LabelledTask(Task, Protocol):
    """A task whose samples have labels that a liar may flip."""

    def with_liars(self, liars: int) -> Self:
        """The same task, in which the first `liars` workers learn from the label C - 1 - c for c of C classes."""


@runtime_checkable
class DividedTask(Task, Protocol):
    """A task whose model may lie on several ranks: its loss is criterion(model(*inputs), targets)."""

    def inputs_targets(self, *batch: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        """What the model gets of a minibatch (b, ...), and what the criterion gets beside the outputs."""

    def criterion(self, outputs: Tensor, targets: Any, vocabulary: Axis | None = None) -> Tensor:
        """The mean loss of a minibatch. With `vocabulary`, outputs are this rank's part of their last dimension."""


@runtime_checkable
class SplitTask(DividedTask, Protocol):
    """A task whose model is split over tensor ranks."""

    def plan(self, model: nn.Module) -> Plan:
        """How the modules of a whole model are split; see `commeff.sharding`."""


@runtime_checkable
class StagedTask(DividedTask, Protocol):
    """A task whose model is dealt to the stages of a pipeline."""

    def layers(self, model: nn.Module) -> Layers:
        """How the modules of the model follow each other; see `commeff.sharding`."""


def objective(task: Task, vocabulary: Axis | None) -> Objective:
    """The two halves of a task's loss, over outputs that may be split.

    Raises
    ------
    ValueError
        The task does not say what they are.
    """
    if not isinstance(task, DividedTask):
        raise ValueError(
            "a task whose workers lie on several ranks must have inputs_targets and criterion, got "
            f"{type(task).__name__} without: write loss(model, *batch) as criterion(model(*inputs), targets), or give "
            "each worker one process"
        )
    criterion = task.criterion if vocabulary is None else partial(task.criterion, vocabulary=vocabulary)
    return Objective(task.inputs_targets, criterion)
