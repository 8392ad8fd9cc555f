"""When something happens: every so many steps, or from one on."""

from __future__ import annotations

import math
from abc import abstractmethod

from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Layout, WorkerRandom
from commeff.core import overlap
from commeff.core.strategy import Keep, Stages, Timetable, Transform, agrees, stages_of


class ByStep(Transform):
    """One of two transforms, chosen by the clock."""

    inner: Transform
    otherwise: Transform

    @abstractmethod
    def due(self, step: int) -> bool:
        """Whether it is `inner` at this step."""

    def _now(self, communicator: Communicator) -> tuple[Transform, Communicator]:
        due = self.due(communicator.step)
        return (self.inner, communicator.child("inner")) if due else (self.otherwise, communicator.child("otherwise"))

    def agrees(self, step: int | None) -> bool:
        if step is None:
            return agrees(self.inner) or agrees(self.otherwise)
        return agrees(self.inner if self.due(step) else self.otherwise, step)

    def post(self, x: Tensor, communicator: Communicator) -> None:
        chosen, below = self._now(communicator)
        if begin := overlap.early(chosen):
            begin(x, below)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        chosen, below = self._now(communicator)
        return (yield from stages_of(chosen, vectors, below))

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        chosen, below = self._now(communicator)
        return overlap.in_place(chosen)(vectors, below)


class Every(ByStep):
    """`inner` at the steps k with (k + 1 + offset) mod period = 0, `otherwise` at the others.

    Parameters
    ----------
    period : int
        The steps between two uses of `inner`.
    inner : Transform
        What is used once a period.
    otherwise : Transform, optional
        What is used at the other steps; nothing unless given.
    offset : int
        By how many steps it comes earlier; -b lets the periods begin with step b.
    """

    def __init__(self, period: int, inner: Transform, otherwise: Transform | None = None, offset: int = 0) -> None:
        require.count(period=period)
        self.period, self.inner, self.otherwise, self.offset = period, inner, otherwise or Keep(), offset

    def due(self, step: int) -> bool:
        return (step + 1 + self.offset) % self.period == 0

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(self.period, sample=self.period))


class Sometimes(ByStep):
    """`inner` at each step with some probability, nothing at the others: a coin that all workers see.

    Parameters
    ----------
    probability : float
        In (0, 1].
    inner : Transform
        What is used where the coin falls so.
    """

    def __init__(self, probability: float, inner: Transform) -> None:
        require.within("(0, 1]", "1/p steps is the mean distance of two exchanges", probability=probability)
        self.probability, self.inner, self.otherwise = probability, inner, Keep()
        self._key: tuple[int, tuple[str, ...]] = 0, ("coin",)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self._key = communicator.seed, (*communicator.path, "coin")

    def due(self, step: int) -> bool:
        seed, path = self._key
        return float(WorkerRandom(seed, [0], step, path).uniform(1)) < self.probability

    def timetable(self) -> Timetable:
        sample = math.ceil(64 / self.probability)  # some 64 uses: known to an eighth
        return super().timetable().join(Timetable(1 if self.probability == 1 else None, sample))


class After(ByStep):
    """`inner` from step `begin` on, `before` until then.

    Parameters
    ----------
    begin : int
        The first step of `inner`.
    inner : Transform
        What is used from then on.
    before : Transform
        What is used until then.
    """

    def __init__(self, begin: int, inner: Transform, before: Transform) -> None:
        require.count(0, begin=begin)
        self.begin, self.inner, self.otherwise = begin, inner, before

    def due(self, step: int) -> bool:
        return step >= self.begin

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(changes=frozenset({self.begin})))


class Since(After):
    """`inner` from step `begin` on, and as if that were the first: it starts from what `before` has given by then.

    An anchor that `inner` keeps is where the rows are when it begins; with `After` it would be where they once started,
    and an outer optimizer would take them back there. Memory: that of both.

    Parameters
    ----------
    begin : int
        The first step of `inner`.
    inner : Transform
        What is used from then on.
    before : Transform
        What is used until then.
    """

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self._layout = layout

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        return self._start_inner((yield from super().stages(vectors, communicator)), communicator)

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return self._start_inner(super().donated(vectors, communicator), communicator)

    def _start_inner(self, out: Tensor, communicator: Communicator) -> Tensor:
        """Start `inner` with the rows after the last step of `before`."""
        if communicator.step + 1 == self.begin:
            self.inner.start(out, self._layout, communicator.child("inner"))
        return out
