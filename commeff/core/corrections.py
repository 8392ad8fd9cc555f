"""Local steps with a memory of their own: D2, quasi-global momentum, FedProx, SCAFFOLD, Scaffnew, tracked gradients.

They see what averaging did as the difference between their last output and their next input, so they need no
communication of their own. Where their memory is mixed too, it travels with the rows.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from commeff import require
from commeff.compressors import Layout
from commeff.core.local import Local
from commeff.core.properties import require_one_rate
from commeff.core.strategy import LocalStep


def where_active(new: Tensor, old: Tensor, active: Tensor | None) -> Tensor:
    """The new rows of active workers and the old rows of the others."""
    return new if active is None else torch.where(active.to(new.device)[:, None], new, old)


class Corrected(LocalStep):
    """A local step around another one, whose rates and options are its own."""

    def __init__(self, inner: LocalStep) -> None:
        self.inner = inner

    def start(self, x: Tensor, layout: Layout) -> None:
        self.inner.start(x, layout)

    @property
    def lr(self) -> float:  # type: ignore[override]
        return self.inner.lr

    @property
    def options(self) -> dict[int, dict[str, Any]]:
        return self.inner.options

    @options.setter
    def options(self, options: dict[int, dict[str, Any]]) -> None:
        self.inner.options = options


class D2(Corrected):
    """out^k = 2 x^k - x^{k-1} + u^k - u^{k-1},  u^k = step(x^k) - x^k with its own learning rate inside; out^0 = x^0 +
    u^0.

    Followed by one gossip it is D2 (arXiv 1803.07068, Algorithm 1). The previous update is remembered, not the previous
    gradient: multiplying an old gradient by a new learning rate would leave a permanent bias after a drop.
    Memory: last_x, last_update. Sends nothing.
    """

    rows = ("last_x", "last_update")

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        self.last_x, self.last_update = x.clone(), torch.zeros_like(x)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        before = x.clone()
        update = self.inner(x, gradient, active) - before
        out = 2 * before - self.last_x + update - self.last_update
        self.last_x = where_active(before, self.last_x, active)
        self.last_update = where_active(update, self.last_update, active)
        return where_active(out, before, active)


class QuasiGlobal(Corrected):
    """m = beta h + g;  x - gamma m;  then h <- mu h + (1 - mu)(x - x')/gamma, x' being what the step is next called
    with (arXiv 2102.04761, Algorithm 1).

    nesterov: the step is along g + beta m. gamma is the learning rate of the step that led to x'; a step at rate 0
    teaches nothing. Memory: momentum = h, last_x.
    """

    rows = ("momentum", "last_x")

    def __init__(self, inner: Local, beta: float, mu: float, nesterov: bool = False) -> None:
        require.within("[0, 1)", beta=beta, mu=mu)
        self.inner: Local = inner
        self.beta, self.mu, self.nesterov = beta, mu, nesterov

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        require_one_rate(self.inner)
        self.last_x, self.momentum = x.clone(), torch.zeros_like(x)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        gamma = self.inner.last_lr
        if gamma:
            momentum = self.mu * self.momentum + (1 - self.mu) / gamma * (self.last_x - x)
            self.momentum = where_active(momentum, self.momentum, active)
        self.last_x = where_active(x.clone(), self.last_x, active)
        direction = gradient + self.beta * self.momentum
        return self.inner(x, gradient + self.beta * direction if self.nesterov else direction, active)


class Carrying(Corrected):
    """A local step with a memory, `carried`, that travels with its rows: `Alongside` mixes both in one message.

    Memory: carried, 0 at first.
    """

    rows: ClassVar[tuple[str, ...]] = ("carried",)

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        self.carried = torch.zeros_like(x)


class TrackedGradient(Carrying):
    """y^k = M(y^{k-1}) + g^k - g^{k-1}, along which the step is, M being the mixing of step k - 1; y^{-1} = g^{-1} = 0.

    If M preserves the sum, the sum of y is that of g at every step. Memory: carried = y, last_gradient.
    """

    rows = ("carried", "last_gradient")

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        self.last_gradient = torch.zeros_like(x)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        self.carried = where_active(self.carried + gradient - self.last_gradient, self.carried, active)
        self.last_gradient = where_active(gradient.clone(), self.last_gradient, active)
        return self.inner(x, self.carried, active)


class CarriedMomentum(Carrying):
    """A step along m^k, then m^{k+1} = M(beta m^k + g^k), M being the mixing of step k; m^0 = 0   (arXiv 2110.13363).

    Memory: carried = m.
    """

    def __init__(self, inner: LocalStep, beta: float) -> None:
        require.within("[0, 1)", beta=beta)
        super().__init__(inner)
        self.beta = beta

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        before = self.carried
        self.carried = where_active(torch.add(gradient, before, alpha=self.beta), before, active)
        return self.inner(x, before, active)


class PeriodCounter(Corrected):
    """A local step that counts steps, so as to know when a period of `period` steps begins. Memory: steps."""

    shared: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(self, inner: LocalStep, period: int) -> None:
        require.count(period=period)
        super().__init__(inner)
        self.period = period

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        self.steps = 0

    def begins(self) -> bool:
        """Whether a period begins with this step, which is counted."""
        self.steps += 1
        return (self.steps - 1) % self.period == 0


class Proximal(PeriodCounter):
    """The gradient gets mu (x - anchor), where the anchor is the x with which the period began (FedProx).

    Memory: anchor.
    """

    rows = ("anchor",)

    def __init__(self, inner: LocalStep, mu: float, period: int) -> None:
        super().__init__(inner, period)
        require.at_least(0, "a negative one pushes away from the anchor", mu=mu)
        self.mu = mu

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        self.anchor = x.clone()

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        if self.begins():
            self.anchor = where_active(x.clone(), self.anchor, active)
        return self.inner(x, gradient + self.mu * (x - self.anchor), active)


class ControlVariate(PeriodCounter):
    """The gradient gets c - c_i, which moves by (y_i - x)/(K gamma) where a period of K steps ends at y_i and the next
    begins at x, the mean of all y_j (SCAFFOLD, option II).

    K gamma is the sum of the learning rates of the steps that the worker took in the period. One that took none, or is
    not there when the next begins, keeps its c - c_i.
    Memory: drift = c - c_i; last, what the last step gave; moved, that sum, and lately, of which period it is.
    """

    rows = ("drift", "last", "moved", "lately")

    def __init__(self, inner: Local, period: int) -> None:
        super().__init__(inner, period)
        self.inner: Local = inner

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        require_one_rate(self.inner)
        self.drift, self.last, self.moved = torch.zeros_like(x), x.clone(), x.new_zeros(len(x), 1)
        self.lately = torch.full((len(x), 1), -1, dtype=torch.int64, device=x.device)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        begins, now = self.begins(), (self.steps - 1) // self.period
        if begins:
            took = (self.lately == now - 1) & (self.moved > 0)
            change = torch.where(took, (self.last - x) / torch.where(took, self.moved, 1.0), 0.0)
            self.drift = where_active(self.drift + change, self.drift, active)
        out = self.inner(x, gradient + self.drift, active)
        moved = torch.where(self.lately == now, self.moved, 0.0) + self.inner.last_lr
        self.moved = where_active(moved, self.moved, active)
        self.lately = where_active(torch.full_like(self.lately, now), self.lately, active)
        self.last = where_active(out.clone(), self.last, active)
        return out


class Shifted(Corrected):
    """The gradient gets -h, where h <- h + (p/gamma)(x' - y) when the step gave y and the next begins at x' (Scaffnew).

    gamma is the learning rate of that step; where it is 0, or nobody averaged, h stays. A worker that did not take it,
    or is not there when the next begins, keeps its h.
    Memory: shift = -h; last = y; lately, which step that was; and how many steps there were.
    """

    rows = ("shift", "last", "lately")
    shared: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(self, inner: Local, probability: float) -> None:
        self.inner: Local = inner
        self.probability = probability

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        require_one_rate(self.inner)
        self.shift, self.last, self.steps = torch.zeros_like(x), x.clone(), 0
        self.lately = torch.full((len(x), 1), -1, dtype=torch.int64, device=x.device)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        gamma, now = self.inner.last_lr, self.steps
        self.steps += 1
        if gamma:
            change = torch.where(self.lately == now - 1, (self.last - x) * (self.probability / gamma), 0.0)
            self.shift = where_active(self.shift + change, self.shift, active)
        out = self.inner(x, gradient + self.shift, active)
        self.lately = where_active(torch.full_like(self.lately, now), self.lately, active)
        self.last = where_active(out.clone(), self.last, active)
        return out
