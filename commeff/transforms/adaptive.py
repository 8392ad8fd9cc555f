"""Periods that follow the loss, which workers average to agree on them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar

from torch import Tensor

from commeff import require
from commeff.communicator import Communicator, Context
from commeff.compressors import DenseMessage, Layout
from commeff.core import overlap
from commeff.core.components import Flow
from commeff.core.local import Local
from commeff.core.strategy import Keep, Stages, Traits, Transform, agrees, stages_of
from commeff.transforms.timing import ByStep

ROUNDING = 1e-9  # engines add losses in different orders; a quotient that is whole stays so


class AdaptivePeriod(ByStep):
    """`inner` once a period, `otherwise` at the other steps; a rule finds the next period from the mean loss.

    With `inner` workers average the losses of their batches (`communicator.context.losses`), one number each, so that
    all have the same period. Where nobody says a loss, or it is no positive number, the period stays.
    Memory: the steps since `inner`, the period, the loss it is compared with, when `inner` last was used. Sends what
    these send, and the loss.

    Parameters
    ----------
    period : int
        The first period.
    inner : Transform
        What is used once a period.
    otherwise : Transform, optional
        What is used at the other steps; nothing unless given.
    """

    shared: ClassVar[tuple[str, ...]] = ("counted", "period", "reference", "last")
    traits = Traits(scope="whole", data_dependent=True)

    def __init__(self, period: int, inner: Transform, otherwise: Transform | None = None) -> None:
        require.count(period=period)
        self._first, self.inner, self.otherwise = period, inner, otherwise or Keep()
        self.period = period

    @abstractmethod
    def next_period(self, loss: float, step: int) -> int:
        """The period that begins after a step whose mean loss was this."""

    def asks(self, step: int) -> bool:
        """Whether the loss is averaged in a step without `inner`."""
        return False

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.counted, self.period, self.reference, self.last = 0, self._first, 0.0, -1

    def due(self, step: int) -> bool:
        """Whether it is `inner` at the step to come."""
        return self.counted + 1 >= self.period

    def agrees(self, step: int | None) -> bool:
        if step is None:
            return super().agrees(step)
        return agrees(self.inner if step == self.last else self.otherwise, step)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        bound = vectors.is_meta  # without values, what it sends at most
        due = bound or self.due(communicator.step)
        chosen, name = (self.inner, "inner") if due else (self.otherwise, "otherwise")
        out = yield from stages_of(chosen, vectors, communicator.child(name))
        yield from self._adapt(due, vectors, communicator)
        return out

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        due, (chosen, below) = self.due(communicator.step), self._now(communicator)
        out = overlap.in_place(chosen)(vectors, below)
        Flow(self._adapt(due, out, communicator)).finish()
        return out

    def _adapt(self, due: bool, vectors: Tensor, communicator: Communicator) -> Generator[Any, Tensor, Tensor]:
        """Count the step, and find the next period where one is over."""
        losses = vectors.new_zeros(len(vectors)) if vectors.is_meta else _losses(communicator.context, len(vectors))
        self.counted += 1
        if losses is not None and (due or self.asks(communicator.step)):
            message = DenseMessage.of(losses.to(vectors)[:, None])
            mean = yield communicator.child("loss").post_average(message, rows=1)
            loss = 0.0 if mean.is_meta else float(mean)
            if math.isfinite(loss) and loss > 0:
                period = self.next_period(loss, communicator.step)
                self.period = max(1, period) if due else self.period
        if due:
            self.counted, self.last = 0, communicator.step
        return vectors


def _losses(context: Context, rows: int) -> Tensor | None:
    """The losses of so many rows, those of the hosted workers who take part."""
    hosted = rows if context.active is None else len(context.active)
    if context.losses is not None and context.losses.shape != (hosted,):
        raise ValueError(
            f"losses must be a number for each of the {hosted} hosted workers, got shape {tuple(context.losses.shape)}"
        )
    return context.losses if context.losses is None or context.active is None else context.losses[context.active]


class Growing(AdaptivePeriod):
    """H = ceil((F_0/F)^power H_0), where F is the mean loss (Gossip-AGA, arXiv 2105.09080, Algorithm 2).

    In the first steps H stays H_0, and F_0 <- (F_0 + F)/2 after each period, beginning with the first F.

    Parameters
    ----------
    period : int
        H_0.
    inner, otherwise : Transform
        As of `AdaptivePeriod`.
    warmup : int
        The steps in which H stays.
    power : float
        More than 0.
    """

    def __init__(self, period: int, inner: Transform, otherwise: Transform, warmup: int, power: float) -> None:
        super().__init__(period, inner, otherwise)
        require.count(0, warmup=warmup)
        require.positive("the period is to grow as the loss falls", power=power)
        self.warmup, self.power = warmup, power

    def next_period(self, loss: float, step: int) -> int:
        if not self.reference or step < self.warmup:
            self.reference = (self.reference + loss) / 2 if self.reference else loss
            return self._first
        return math.ceil((self.reference / loss) ** self.power * self._first - ROUNDING)


class Shrinking(AdaptivePeriod):
    """tau = ceil(sqrt(F/F_0 gamma_0/gamma) tau_0), where F is the mean loss and F_0 that of the first step (AdaComm).

    tau changes after the first average that is `interval` steps or more after the last change; where it would not fall
    at the same rate gamma, it becomes decay tau. gamma_0 is the rate of the first step, gamma that of the last.
    Memory: when tau changed, and these rates, beside that of `AdaptivePeriod`.

    Parameters
    ----------
    period : int
        tau_0.
    inner : Transform
        What is used once a period.
    interval : int
        Steps between two changes.
    decay : float
        In (0, 1).
    local : Local
        The step whose learning rate is gamma.
    """

    shared = (*AdaptivePeriod.shared, "changed", "first_rate", "rate")

    def __init__(self, period: int, inner: Transform, interval: int, decay: float, local: Local) -> None:
        super().__init__(period, inner)
        require.count(interval=interval)
        require.within("(0, 1)", "the period is to shrink", decay=decay)
        self.interval, self.decay, self._local = interval, decay, local

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.changed, self.first_rate, self.rate = -1, 0.0, 0.0

    def asks(self, step: int) -> bool:
        return not self.reference

    def next_period(self, loss: float, step: int) -> int:
        rate = self._local.last_lr
        if not self.reference:
            self.reference, self.first_rate, self.rate = loss, rate, rate
        if step - self.changed < self.interval or not rate:
            return self.period
        period = math.ceil(math.sqrt(loss / self.reference * self.first_rate / rate) * self._first - ROUNDING)
        if period >= self.period and rate == self.rate:
            period = math.ceil(self.decay * self.period - ROUNDING)
        self.changed, self.rate = step, rate
        return period
