"""Outer optimizers: what the workers moved since the anchor is the gradient of a second, slower optimizer. And what a
server does with what has arrived: an optimizer step, or Nesterov's momentum once for many arrivals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import DenseMessage, Layout
from commeff.core.local import Local, OptimizerFactory
from commeff.core.properties import evaluates_elsewhere, kind_of, learner_of, require_one_rate, scope_of
from commeff.core.strategy import LocalStep, Stages, Stateful, Traits, Transform, agrees, stages_of
from commeff.topologies import Topology
from commeff.transforms.averaging import fitting


def require_outer(outer: LocalStep) -> None:
    """Refuse a second optimizer that is none, or asks for more than what workers moved."""
    if not isinstance(outer, LocalStep):
        raise TypeError(
            f"outer must be a local step, got {getattr(outer, '__name__', type(outer).__name__)}; give "
            "Local(functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9))"
        )
    if learner_of(outer) is not None:
        raise ValueError(
            f"outer must need nothing but gradients, got {kind_of(outer)}: of what workers moved nobody knows a "
            "curvature; choose SGD with nesterov, and give Sophia as the workers' own"
        )
    if evaluates_elsewhere(outer):
        raise ValueError(
            f"outer must be evaluated where it steps, got {kind_of(outer)}: workers go on from that, which is not its "
            "result; choose SGD with nesterov, and give the schedule-free one as the workers' own"
        )


class Anchored(Transform):
    """A second optimizer `outer` on an anchor, a row a worker, which starts where the workers do.

    Memory: anchor, and the outer optimizer's.

    Parameters
    ----------
    outer : LocalStep
        The second optimizer.
    average : Transform
        M, the averaging.
    """

    rows = ("anchor",)
    traits = Traits(common=("anchor", "outer"))

    def __init__(self, outer: LocalStep, average: Transform) -> None:
        require_outer(outer)
        self.outer, self.average = outer, average

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.anchor = v.clone()
        self.outer.start(self.anchor, layout)

    def agrees(self, step: int | None) -> bool:
        return agrees(self.average, step)


class Outer(Anchored):
    """anchor <- outer(anchor, M(anchor - x));  -> anchor, for an averaging M   (DiLoCo, SlowMo, FedOpt, Qsparse-local).

    Sends what M sends.

    Parameters
    ----------
    outer : LocalStep
        The second optimizer.
    average : Transform
        M, the averaging.
    """

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        moved = yield from stages_of(self.average, self.anchor - vectors, communicator.child("average"))
        self.anchor = self.outer(self.anchor, moved)
        return self.anchor.clone()


class PerWorkerOuter(Anchored):
    """anchor_i <- outer(anchor_i, anchor_i - M(v_i));  -> anchor_i: an optimizer goes where an averaging M would.

    Sends what M sends.

    Parameters
    ----------
    outer : LocalStep
        The second optimizer.
    average : Transform
        M, the averaging.
    """

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        mean = yield from stages_of(self.average, vectors, communicator.child("average"))
        self.anchor = self.outer(self.anchor, self.anchor - mean)
        return self.anchor.clone()


class GossipOuter(Transform):
    """u_i <- alpha u_i + beta sum_j W[i, j] (x_j - a_j) - gamma (a_i - sum_j W[i, j] a_j);  a_i <- a_i + u_i;  -> a_i.

    A heavy ball on the moves of the neighbours, whose last term draws the anchors together (NoLoCo). The anchors'
    difference over one edge obeys a heavy ball of curvature gamma, so gamma < 2 (1 + alpha).
    Memory: anchor, momentum = u. Sends x_i - a_i and a_i, in one message, to each neighbour.

    Parameters
    ----------
    topology : Topology
        Who receives from whom, with which weights.
    alpha, beta, gamma : float
        The momentum, the step along the moves, and the step towards the neighbours' anchors.
    """

    rows = ("anchor", "momentum")

    def __init__(self, topology: Topology, alpha: float, beta: float, gamma: float) -> None:
        require.within("[0, 1)", alpha=alpha)
        require.positive(beta=beta)
        if not 0 < gamma < 2 * (1 + alpha):
            raise ValueError(
                f"gamma must lie in (0, {2 * (1 + alpha):g}), got {gamma}: anchors would not come together; give 1"
            )
        self.topology, self.alpha, self.beta, self.gamma = fitting(topology), alpha, beta, gamma

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.anchor, self.momentum = v.clone(), torch.zeros_like(v)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        message = DenseMessage.of(torch.cat([vectors - self.anchor, self.anchor], dim=1))
        mixed = yield communicator.post_mix(message, self.topology.at(communicator.step))
        moved, anchor = mixed.chunk(2, dim=1)
        self.momentum = self.alpha * self.momentum + self.beta * moved - self.gamma * (self.anchor - anchor)
        self.anchor = self.anchor + self.momentum
        return self.anchor.clone()


class InUnitsOf(LocalStep):
    """u <- beta u + g / gamma;  x <- x - alpha gamma u: an outer SGD step in units of the inner gradient (SlowMo).

    gamma is the learning rate of the last inner step, so the slow momentum stays right under a schedule; for gamma = 0
    the limit x - alpha g is taken. Memory: that of the optimizer, whose learning rate is alpha.

    Parameters
    ----------
    base : Local
        The inner step, whose learning rate is gamma.
    optimizer : callable
        A factory of the outer optimizer, such as `functools.partial(torch.optim.SGD, lr=1.0, momentum=0.9)`.
    """

    def __init__(self, base: Local, optimizer: OptimizerFactory) -> None:
        self._base, self.inner = base, Local(optimizer)

    @property
    def lr(self) -> float:  # type: ignore[override]
        return self.inner.lr * self._base.last_lr

    def start(self, x: Tensor, layout: Layout) -> None:
        self.inner.start(x, layout)
        require_one_rate(self._base)

    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        gamma = self._base.last_lr
        if not gamma:
            return x - self.inner.lr * gradient
        before = x.clone()
        return before + gamma * (self.inner(x, gradient / gamma, active) - before)


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
