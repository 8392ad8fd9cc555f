"""Averages that send differences: EF21 with its smoothed gradients, DIANA, MARINA, SCAFFOLD's control variates."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Compressor, DenseMessage, Layout, WorkerRandom
from commeff.core.corrections import where_active
from commeff.core.strategy import (
    Encoder,
    GradientComparison,
    Gradients,
    Stages,
    Timetable,
    Traits,
    Transform,
    stages_of,
)
from commeff.optimizers.curvature import require_oracle
from commeff.transforms.encoders import Plain, as_encoder


class EF21(Transform):
    """c_i = C(v_i - public_i);  public_i += c_i;  mean += (1/n) sum_j c_j;  -> mean   (arXiv 2106.05203, Algorithm 2).

    Memory: public, what everybody knows of worker i's vector; mean, one row, always the mean of all public. Sends: c_i,
    by all-gather.

    Parameters
    ----------
    changes : Encoder or Compressor
        C, contractive.
    """

    rows = ("public",)
    shared = ("mean",)
    traits = Traits(agrees=True)

    def __init__(self, changes: Encoder | Compressor) -> None:
        self.changes = as_encoder(changes)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.public, self.mean = torch.zeros_like(v), v.new_zeros(1, layout.d)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        change = self.changes.encode(vectors - self.public, communicator, "up")
        handle = communicator.post_average(change, rows=1)
        change.add_rows(self.public)
        self.mean.add_((yield handle), alpha=communicator.n / communicator.context.n)
        return self.mean.clone().expand_as(vectors)


class Diana(Transform):
    """c_i = C(v_i - shift_i);  -> h + (1/n) sum_j c_j;  shift_i += alpha c_i;  h += alpha (1/n) sum_j c_j   (arXiv
    1901.09269, Algorithm 1).

    C is unbiased, so that the result is; alpha is 1 / (1 + omega) unless given.
    Memory: shift, what everybody knows of worker i's vector; mean = h, one row, always the mean of all shifts. Sends
    c_i.

    Parameters
    ----------
    compressor : Compressor
        C, unbiased.
    alpha : float, optional
        The share by which shifts move, in [0, 1].
    """

    rows = ("shift",)
    shared = ("mean",)
    traits = Traits(agrees=True)

    def __init__(self, compressor: Compressor, alpha: float | None = None) -> None:
        if alpha is not None:
            require.within("[0, 1]", alpha=alpha)
        self.compressor, self.alpha = Plain(compressor), alpha
        if alpha is None:  # omega is that of the whole vector
            self.traits = Traits(scope="whole", exact_on_pieces=True, agrees=True)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.shift, self.mean = torch.zeros_like(v), v.new_zeros(1, layout.d)
        omega = self.compressor.omega(layout, "DIANA", "ef21")
        self._alpha = 1 / (1 + omega) if self.alpha is None else self.alpha

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        change = self.compressor.encode(vectors - self.shift, communicator, "up")
        handle = communicator.post_average(change, rows=1)
        self.shift.add_(change.decode(), alpha=self._alpha)
        learned = communicator.n / communicator.context.n * (yield handle)
        out = self.mean + learned
        self.mean.add_(learned, alpha=self._alpha)
        return out.expand_as(vectors)


class Smooth(Transform):
    """v^k = (1 - eta) v^{k-1} + eta g^k, with v^0 = g^0: the momentum that EF21-SGDM puts before its compressor (arXiv
    2305.15155).

    Memory: smoothed, and whether there has been a first. Sends nothing.

    Parameters
    ----------
    eta : float
        The weight of the newest gradient, in (0, 1].
    """

    rows = ("smoothed",)
    shared = ("begun",)
    traits = Traits(sends=False)

    def __init__(self, eta: float) -> None:
        require.within("(0, 1]", eta=eta)
        self.eta = eta

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.smoothed, self.begun = torch.zeros_like(v), False

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        self.smoothed = torch.lerp(self.smoothed, vectors, self.eta if self.begun else 1.0)
        self.begun = True
        return self.smoothed.clone()


def sends_whole(begun: bool, probability: float, communicator: Communicator) -> bool:
    """Whether whole gradients are sent in a step: at first, and where a coin falls so that all workers see."""
    coin = WorkerRandom(communicator.seed, [0], communicator.step, ("local", "coin")).uniform(1)
    return not begun or float(coin) < probability


class Differences(GradientComparison):
    """g(x^k) where whole gradients are sent, else g(x^k) - g(x^{k-1}) of the same batch.

    Memory: last_x = x^{k-1}; begun, whether there has been a step.

    Parameters
    ----------
    probability : float
        That of whole gradients, in (0, 1].
    """

    rows = ("last_x",)
    shared = ("begun",)
    needs_oracle = True

    def __init__(self, probability: float) -> None:
        require.within("(0, 1]", "1/p steps is the mean distance of two whole gradients", probability=probability)
        self.probability = probability

    def start(self, x: Tensor, layout: Layout) -> None:
        self.last_x, self.begun = x.clone(), False

    def __call__(
        self, x: Tensor, gradient: Tensor, communicator: Communicator, oracle: Gradients | None, moving: Tensor | None
    ) -> Tensor:
        elsewhere = require_oracle(oracle, self)
        out = gradient
        if not sends_whole(self.begun, self.probability, communicator):
            out = gradient - elsewhere(self.last_x)
        self.last_x = where_active(x.clone(), self.last_x, moving)
        self.begun = self.begun or bool(communicator.context.present.any())
        return out


class Marina(Transform):
    """mean <- (1/n) sum_j v_j where whole gradients are sent, else mean + (1/n) sum_j C(v_j);  -> mean   (arXiv
    2102.07845, Algorithm 1).

    Memory: mean, one row; begun, whether there has been a step. Sends v_i, or C(v_i).

    Parameters
    ----------
    compressor : Compressor
        C, unbiased.
    probability : float
        That of whole gradients, of the same coin as `Differences`, which give v.
    """

    shared = ("mean", "begun")
    # scope: of gradients that are sent while others are computed, nobody would know the difference
    traits = Traits(scope="whole", exact_on_pieces=True, agrees=True)

    def __init__(self, compressor: Compressor, probability: float) -> None:
        self.compressor, self.probability = Plain(compressor), probability

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(1 if self.probability == 1 else None))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.compressor.omega(layout, "MARINA", "ef21")
        self.mean, self.begun = v.new_zeros(1, layout.d), False

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        if sends_whole(self.begun, self.probability, communicator):
            self.mean = (yield communicator.post_average(DenseMessage.of(vectors), rows=1)).clone()
        else:
            change = self.compressor.encode(vectors, communicator, "up")
            self.mean = self.mean + (yield communicator.post_average(change, rows=1))
        self.begun = True
        return self.mean.clone().expand_as(vectors)


class ServerVariates(Transform):
    """g_i -> g_i - c_i + c, c_i being the g_i of the last period's first step, and c = M(c_j)   (SCAFFOLD, option I).

    A period begins with equal rows, the server's model; until its first is over c_i = c = 0. A worker that was not
    there when a period began keeps what it has.
    Memory: drift = c - c_i, and coming, that of the next period. Sends what M sends, once a period.

    Parameters
    ----------
    average : Transform
        M, the averaging.
    period : int
        The steps of a period.
    """

    rows = ("drift", "coming")

    def __init__(self, average: Transform, period: int) -> None:
        require.count(period=period)
        self.average, self.period = average, period

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(self.period))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.drift, self.coming = torch.zeros_like(v), torch.zeros_like(v)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        if communicator.step % self.period == 0:
            mean = yield from stages_of(self.average, vectors, communicator.child("average"))
            self.drift, self.coming = self.coming, mean - vectors
        return vectors + self.drift
