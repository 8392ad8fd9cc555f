"""Outer optimizers: what the workers moved since the anchor is the gradient of a second, slower optimizer."""

from __future__ import annotations

from torch import Tensor

from commeff.communicator import Communicator
from commeff.local import Local, OptimizerFactory
from commeff.strategy import LocalStep, Transform
from compressors import Layout


class Outer(Transform):
    """anchor <- outer(anchor, M(anchor - x));  -> anchor, for an averaging M   (DiLoCo, SlowMo, FedOpt, Qsparse-local).

    Memory: anchor, and the outer optimizer's. Sends what M sends.
    """

    rows = ("anchor",)

    def __init__(self, outer: LocalStep, average: Transform) -> None:
        self.outer, self.average = outer, average

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.anchor = v.clone()
        self.outer.start(self.anchor, layout)
        self.average.start(v, layout, communicator.at("average"))

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        self.anchor = self.outer(self.anchor, self.average(self.anchor - vectors, communicator.at("average")))
        return self.anchor.clone()


class RelativeTo(LocalStep):
    """x -> x - (lr of `base`) * step(g / (lr of `base`)): an outer step in the units of the inner gradient, right under
    a schedule (SlowMo).

    Memory: that of the optimizer, whose own learning rate is the factor alpha.
    """

    def __init__(self, base: LocalStep, optimizer: OptimizerFactory) -> None:
        self._base, self.inner = base, Local(optimizer)

    @property
    def lr(self) -> float:
        return self.inner.lr * self._base.lr

    def start(self, x: Tensor, layout: Layout) -> None:
        self.inner.start(x, layout)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        unit = self._base.lr
        if not unit:
            return x
        before = x.clone()
        return before + unit * (self.inner(x, gradient / unit, active) - before)
