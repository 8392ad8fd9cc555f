"""What a server does with what has arrived: an optimizer step, or Nesterov's momentum once for many arrivals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from commeff import require
from commeff.compressors import Layout
from commeff.core.properties import kind_of, scope_of
from commeff.core.state import Stateful
from commeff.core.strategy import LocalStep
from commeff.transforms.outer import require_outer


class ServerStep(Stateful, ABC):
    """The server's model (s, d), which is moved by what arrives: s is 1 in the process that hosts it, else 0.

    Memory: model.
    """

    rows: ClassVar[tuple[str, ...]] = ("model",)
    model: Tensor

    def start(self, model: Tensor, layout: Layout, workers: int) -> None:
        """Begin with a model, for so many workers."""
        self.model = model.clone()

    @abstractmethod
    def move(self, mean: Tensor, count: int) -> None:
        """Move the model by the mean of `count` moves that arrived together, (s, d)."""


class ServerOptimizer(ServerStep):
    """y <- outer(y, mean): any optimizer, whose gradient is the mean of what has arrived.

    Memory: model, and the optimizer's.

    Parameters
    ----------
    outer : LocalStep
        The optimizer, of elementwise kind.
    """

    def __init__(self, outer: LocalStep) -> None:
        require_outer(outer)
        if scope_of(outer) != "coordinate":
            raise ValueError(f"outer must be elementwise, got {kind_of(outer)}; choose SGD or Adam")
        self.outer = outer

    def start(self, model: Tensor, layout: Layout, workers: int) -> None:
        super().start(model, layout, workers)
        self.outer.start(self.model, layout)

    def move(self, mean: Tensor, count: int) -> None:
        self.model = self.outer(self.model, mean)


class DelayedNesterov(ServerStep):
    """y <- y - lr total/N; once N moves have come since the last time also  m <- beta m + (their sum)/N;
    y <- y - lr beta m   (arXiv 2401.09135, delayed Nesterov with c = 0).

    Every arrival counts at once, the momentum only once for N of them. Memory: model, momentum, buffer; waiting.

    Parameters
    ----------
    lr : float
        The server's learning rate, above 0.
    beta : float
        The momentum, in [0, 1).
    buffer_size : int, optional
        N, at least 1; the number of workers unless given.
    """

    rows = ("model", "momentum", "buffer")
    shared = ("waiting",)

    def __init__(self, lr: float, beta: float, buffer_size: int | None = None) -> None:
        require.positive(outer_lr=lr)
        require.within("[0, 1)", beta=beta)
        if buffer_size is not None:
            require.count(buffer_size=buffer_size)
        self.lr, self.beta, self.buffer_size = lr, beta, buffer_size

    def start(self, model: Tensor, layout: Layout, workers: int) -> None:
        super().start(model, layout, workers)
        self.momentum, self.buffer, self.waiting = torch.zeros_like(model), torch.zeros_like(model), 0
        self._full = self.buffer_size or workers

    def move(self, mean: Tensor, count: int) -> None:
        total = mean * (count / self._full)
        self.buffer = self.buffer + total
        self.waiting += count
        if self.waiting >= self._full:
            self.momentum = self.beta * self.momentum + self.buffer
            total = total + self.beta * self.momentum
            self.buffer, self.waiting = torch.zeros_like(self.buffer), 0
        self.model = self.model - self.lr * total
