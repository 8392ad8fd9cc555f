"""Local steps that see gradients before they are sent, and say what is sent of them: MARINA, LAG, LASG.

They compare a gradient with one of another point, of the same batch (`oracle`) or of an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from commeff.compressors import Layout, WorkerRandom
from commeff.core.corrections import Corrected, kept
from commeff.core.factories import one_rate
from commeff.core.local import Local

if TYPE_CHECKING:
    from commeff.communicator import Communicator

Gradients = Callable[[Tensor], Tensor]


class Differences(Corrected):
    """What is sent is g(x^k) where a coin falls so, and at first, else g(x^k) - g(x^{k-1}) of the same batch (MARINA).

    Memory: last_x = x^{k-1}; begun, whether there has been a step.

    Attributes
    ----------
    full : bool
        Whether it is g(x^k) in this step, at all workers.
    """

    rows = ("last_x",)
    shared = ("begun",)

    def __init__(self, inner: Local, probability: float) -> None:
        if not 0 < probability <= 1:
            raise ValueError(
                f"probability must lie in (0, 1], got {probability}: errors of messages would add up for ever; 1/p "
                "steps is the mean distance of two whole gradients"
            )
        self.inner, self.probability, self.full = inner, probability, True

    @property
    def compares(self) -> bool:
        return True

    def start(self, x: Tensor, layout: Layout) -> None:
        self.inner.start(x, layout)
        self.last_x, self.begun, self.full = x.clone(), False, True

    def compared(self, x: Tensor, gradient: Tensor, communicator: Communicator, oracle: Gradients | None) -> Tensor:
        elsewhere = asked(oracle, self)
        coin = WorkerRandom(communicator.seed, [0], communicator.step, ("local", "coin")).uniform(1)
        self.full = not self.begun or float(coin) < self.probability
        self.begun = self.begun or bool(communicator.context.present.any())
        return gradient if self.full else gradient - elsewhere(self.last_x)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        self.last_x = kept(x.clone(), self.last_x, active)
        return self.inner(x, gradient, active)


class Lazy(Corrected):
    """What is sent is g_i - h_i, h_i what was sent so far, and only where gradients have changed enough (LAG).

    Worker i is silent where gamma^2 |change|^2 <= threshold (the sum of the last `memory` |x^{k+1-d} - x^{k-d}|^2); the
    change is g_i - h_i. All send at first, and who has been silent for `longest` steps.
    Memory: public = h_i; recent, those squares; age, the steps since it sent, -1 before.

    Attributes
    ----------
    sends : (w,) bool
        Who sends in this step.
    """

    rows: ClassVar[tuple[str, ...]] = ("public", "recent", "age")
    why_all = "who returns would not know what it had sent; give participation=1, or ef21, which allows absence"

    def __init__(self, inner: Local, threshold: float, memory: int, longest: int | None = None) -> None:
        if not threshold >= 0:
            raise ValueError(f"threshold must be at least 0, got {threshold}: 0 is never silent")
        for name, value in {"memory": memory, "longest": longest}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}: it counts steps")
        self.inner: Local = inner
        self.threshold, self.memory, self.longest = threshold, memory, longest

    def start(self, x: Tensor, layout: Layout) -> None:
        self.inner.start(x, layout)
        one_rate(self.inner)
        self._layout = layout
        self.public, self.recent = torch.zeros_like(x), x.new_zeros(len(x), self.memory)
        self.age = torch.full((len(x), 1), -1, dtype=torch.int64, device=x.device)

    def square(self, rows: Tensor) -> Tensor:
        """(w, 1): |rows|^2 of whole rows."""
        return self._layout.row_sum(rows.square())

    def change(self, x: Tensor, gradient: Tensor, oracle: Gradients | None) -> Tensor:
        """(w, 1): |change|^2."""
        return self.square(gradient - self.public)

    def compared(self, x: Tensor, gradient: Tensor, communicator: Communicator, oracle: Gradients | None) -> Tensor:
        moved = self.threshold * self.recent.sum(1, keepdim=True)
        sends = (self.age < 0) | (self.lr**2 * self.change(x, gradient, oracle) > moved)
        if self.longest is not None:
            sends = sends | (self.age >= self.longest)
        out = gradient - self.public
        self.sent(x, gradient, sends)
        return out

    def sent(self, x: Tensor, gradient: Tensor, sends: Tensor) -> None:
        """Remember who sends, (w, 1), and what."""
        self.sends = sends[:, 0]
        self.public = torch.where(sends, gradient, self.public)
        self.age = torch.where(sends, 1, self.age + 1)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        before = x.clone()
        out = self.inner(x, gradient, active)
        self.recent = torch.cat([self.square(out - before), self.recent[:, :-1]], 1)
        return out


class LazyByPoint(Lazy):
    """The same, where the change is smoothness (x - y_i), y_i being where worker i last sent: nobody need compute it.

    Memory also: snapshot = y_i.
    """

    rows = (*Lazy.rows, "snapshot")

    def __init__(
        self, inner: Local, threshold: float, memory: int, smoothness: float, longest: int | None = None
    ) -> None:
        super().__init__(inner, threshold, memory, longest)
        if not smoothness > 0:
            raise ValueError(f"smoothness must be above 0, got {smoothness}: it bounds how fast gradients change")
        self.smoothness = smoothness

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        self.snapshot = x.clone()

    def change(self, x: Tensor, gradient: Tensor, oracle: Gradients | None) -> Tensor:
        return self.smoothness**2 * self.square(x - self.snapshot)

    def sent(self, x: Tensor, gradient: Tensor, sends: Tensor) -> None:
        super().sent(x, gradient, sends)
        self.snapshot = torch.where(sends, x, self.snapshot)


class LazyByBatch(LazyByPoint):
    """The same, where the change is g_i(x) - g_i(y_i) of this step's batch: its noise is in both (LASG)."""

    def __init__(self, inner: Local, threshold: float, memory: int, longest: int) -> None:
        super().__init__(inner, threshold, memory, smoothness=1.0, longest=longest)

    @property
    def compares(self) -> bool:
        return True

    def change(self, x: Tensor, gradient: Tensor, oracle: Gradients | None) -> Tensor:
        return self.square(gradient - asked(oracle, self)(self.snapshot))


def asked(oracle: Gradients | None, step: Corrected) -> Gradients:
    """The oracle, which this step must have."""
    if oracle is None:
        raise ValueError(
            f"{type(step).__name__} must know gradients of the step's batch at another point, got no oracle: use "
            "commeff.train, or give step(oracle=), a function of x"
        )
    return oracle
