"""What a run trains: the interface between the trainer and any model and data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from torch import Tensor, nn


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
        """`train_loss`, `val_loss`, `val_accuracy`, whichever apply."""

    def test(self, model: nn.Module) -> dict[str, float]:
        """`test_loss`, `test_accuracy` on data that nothing was chosen by; {} where there is none."""

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """Training inputs on which BatchNorm statistics are re-estimated."""
