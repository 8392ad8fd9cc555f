"""A run under way: its clockwork, and what a checkpoint of it holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, zeros_like

from commeff.communicator import Communicator
from commeff.core import overlap
from commeff.core.strategy import Strategy
from commeff.replicas import Stacked
from commeff.training.evaluation import measure
from commeff.training.task import Task

NUMBERS = ("losses", "counted", "step", "seconds", "exposed", "samples", "row")


@dataclass
class Run:
    """A run under way: everything that decides its future, and what it has measured since the last row.

    A step is one model update; `samples` counts what all workers together have drawn for them. `exposed` is the part of
    `seconds` in which this process stood still for others.
    """

    replicas: Stacked
    strategy: Strategy
    communicator: Communicator
    losses: Tensor
    counted: int = 0
    step: int = 0
    seconds: float = 0.0
    exposed: float = 0.0
    samples: int = 0
    row: dict[str, Any] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        numbers = {name: getattr(self, name) for name in NUMBERS}
        parts = {"replicas": self.replicas.state_dict(), "strategy": self.strategy.state_dict()}
        return numbers | parts | {"ledger": self.communicator.ledger.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        for name in NUMBERS:
            setattr(self, name, state[name])
        self.replicas.load_state_dict(state["replicas"])
        self.strategy.load_state_dict(state["strategy"])
        self.communicator.ledger.load_state_dict(state["ledger"])

    def advance(self, task: Task, l2: float) -> None:
        """One model update."""
        with self.clock():
            x, step, rounds = self.replicas.parameters, self.communicator.step, self.strategy.accumulate
            batches = [task.batch(step * rounds + r, self.communicator.workers) for r in range(rounds)]
            self.strategy.post(x, self.communicator)
            awaited = overlap.awaited(self.strategy) if self.communicator.transport.size > 1 else ()
            gradient, losses = self.replicas.compute(task.loss, batches, step, l2, awaited, self._ready)
            self.replicas.load(self.strategy.step(x, gradient, self.communicator, donate=True))
            self.losses, self.counted, self.step = self.losses + losses, self.counted + 1, step + 1
            self.samples += self.communicator.n * sum(len(batch[0][0]) for batch in batches)

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Count what is done inside as seconds of training."""
        begun, waited = time.perf_counter(), self.communicator.transport.waited
        yield
        self.seconds += time.perf_counter() - begun
        self.exposed += self.communicator.transport.waited - waited

    def _ready(self, start: int, stop: int) -> None:
        overlap.ready(self.strategy, self.replicas.gradients, start, stop, self.communicator)

    def measure(self, task: Task) -> None:
        """A new row: the mean minibatch loss since the last one, and how well the average model does."""
        mean_loss = float(self.communicator.observe(self.losses / self.counted))
        self.losses, self.counted = zeros_like(self.losses), 0
        self.row = {
            "step": self.step,
            "minibatch_loss": mean_loss,
            "lr": self.strategy.local.lr,
            "seconds": self.seconds,
        }
        epochs = {"epoch": self.samples / task.size} if task.size else {}
        self.row |= {"samples": self.samples} | epochs | measure(task, self.replicas, self.communicator)
        ledger = self.communicator.ledger
        self.row |= {"payload_bytes": ledger.payload_bytes, "wire_bytes": ledger.wire_bytes}
        if self.communicator.transport.size > 1:
            self.row |= {"exposed_seconds": self.exposed}
