"""When something happens, and in which units."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.strategy import Keep, LocalStep, Transform
from compressors import Layout


class Every(Transform):
    """`inner` at the steps k with (k + 1) mod period = 0, `otherwise` at the others."""

    def __init__(self, period: int, inner: Transform, otherwise: Transform | None = None) -> None:
        if period < 1:
            raise ValueError(f"a period of {period} steps was asked for; it takes at least 1")
        self.period, self.inner, self.otherwise = period, inner, otherwise or Keep()

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.inner.start(v, layout, communicator.at("due"))
        self.otherwise.start(v, layout, communicator.at("otherwise"))

    def _now(self, communicator: Communicator) -> tuple[Transform, Communicator]:
        due = (communicator.step + 1) % self.period == 0
        return (self.inner, communicator.at("due")) if due else (self.otherwise, communicator.at("otherwise"))

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        chosen, below = self._now(communicator)
        return chosen(vectors, below)

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        chosen, below = self._now(communicator)
        return chosen.donated(vectors, below)


class Scaled(Transform):
    """v -> inner(lr v) / lr, with the learning rate of the local step to come: a memory in the units of x survives a
    schedule.

    Where lr is 0 nothing would move: nothing is sent and the result is 0.
    """

    def __init__(self, local: LocalStep, inner: Transform) -> None:
        self._local, self.inner = local, inner

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.inner.start(v, layout, communicator)

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        lr = self._local.lr
        return self.inner(vectors * lr, communicator) / lr if lr else torch.zeros_like(vectors)
