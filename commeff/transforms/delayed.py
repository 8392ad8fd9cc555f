"""Averaging that arrives some steps later, hidden behind the steps in between."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.overlap import Flow
from commeff.core.strategy import Transform, stages_of


@dataclass
class Underway:
    """M(v) - v of an earlier step, where M may still be travelling."""

    v: Tensor
    flow: Flow
    communicator: Communicator
    step: int

    def wait(self) -> Tensor:
        """The correction, made with the clock of the step at which it was begun."""
        with self.communicator.at_step(self.step):
            return self.flow.finish() - self.v


class Delayed(Transform):
    """out^k = v^k + (M(v^{k-delay}) - v^{k-delay}): what M finds travels during `delay` steps, and is then added to
    what has happened meanwhile.

    If M preserves the mean, so does this. An M with a memory is waited for before its next step, so it hides behind one
    step at most. The first `delay` results are v itself; delay = 0 is M. Memory: corrections, the M(v) - v of the last
    `delay` steps. Sends what M sends, at the same steps.

    Parameters
    ----------
    inner : Transform
        M, the averaging.
    delay : int
        After how many steps its result is used.
    """

    rows = ("corrections",)

    def __init__(self, inner: Transform, delay: int) -> None:
        if not isinstance(delay, int) or delay < 0:
            raise ValueError(f"delay must be a whole number of at least 0, got {delay!r}: it counts steps")
        self.inner, self.delay = inner, delay

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self._like, self._shape = v.new_empty(0), v.shape
        self._queue: list[Underway | Tensor | None] = [None] * self.delay  # None is a correction of zero

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        if not self.delay:
            return self.inner(vectors, communicator.child("inner"))
        if self.inner.remembers:
            self.drain()  # a memory that one step has not finished with is not the next one's to use
        below, v = communicator.child("inner"), vectors.clone()
        flow = Flow(stages_of(self.inner, v, below))
        unmoved = flow.handle is None and flow.finish() is v
        self._queue.append(None if unmoved else Underway(v, flow, below, communicator.step))
        correction = _result(self._queue.pop(0))
        return vectors if correction is None else vectors + correction

    def drain(self) -> None:
        self._queue = [_result(correction) for correction in self._queue]
        super().drain()

    @property
    def corrections(self) -> Tensor:
        """(w, delay, d): the corrections to come; what travels is waited for."""
        self.drain()
        out = self._like.new_zeros(self._shape[0], self.delay, self._shape[1])
        for i, correction in enumerate(self._queue):
            if isinstance(correction, Tensor):
                out[:, i] = correction
        return out

    @corrections.setter
    def corrections(self, stacked: Tensor) -> None:
        self._queue = [rows.clone() for rows in stacked.unbind(1)]


def _result(correction: Underway | Tensor | None) -> Tensor | None:
    return correction.wait() if isinstance(correction, Underway) else correction
