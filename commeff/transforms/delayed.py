"""Averaging that arrives some steps later, hidden behind the steps in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core import overlap
from commeff.core.components import Flow
from commeff.core.properties import remembers
from commeff.core.strategy import Traits, Transform, stages_of
from commeff.transforms.timing import Every

LATE = "what travels while steps go on comes from those who were there before; give participation=1, or delay=0"


@dataclass
class PendingResult:
    """M(v) of an earlier step, where M may still be travelling."""

    v: Tensor
    flow: Flow
    communicator: Communicator
    step: int

    def result(self) -> Tensor:
        """M(v), made with the clock of the step at which it was begun."""
        now, self.communicator.step = self.communicator.step, self.step
        try:
            return self.flow.finish()
        finally:
            self.communicator.step = now

    def wait(self) -> Tensor:
        """The correction M(v) - v."""
        return self.result() - self.v


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
        require.count(0, delay=delay)
        self.inner, self.delay = inner, delay
        if delay:
            self.traits = Traits(needs_everyone=LATE)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self._like, self._shape = v.new_empty(0), (len(v), v.shape[1])
        self._queue: list[PendingResult | Tensor | None] = [None] * self.delay  # None is a correction of zero

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        if not self.delay:
            return self.inner(vectors, communicator.child("inner"))
        if remembers(self.inner):
            overlap.drain(self)  # a memory that one step has not finished with is not the next one's to use
        below, v = communicator.child("inner"), vectors.clone()
        flow = Flow(stages_of(self.inner, v, below))
        unmoved = flow.handle is None and flow.finish() is v
        self._queue.append(None if unmoved else PendingResult(v, flow, below, communicator.step))
        correction = _result(self._queue.pop(0))
        return vectors if correction is None else vectors + correction

    def drain(self) -> None:
        self._queue = [_result(correction) for correction in self._queue]

    @property
    def corrections(self) -> Tensor:
        """(w, delay, d): the corrections to come; what travels is waited for."""
        overlap.drain(self)
        out = self._like.new_zeros(self._shape[0], self.delay, self._shape[1])
        for i, correction in enumerate(self._queue):
            if isinstance(correction, Tensor):
                out[:, i] = correction
        return out

    @corrections.setter
    def corrections(self, stacked: Tensor) -> None:
        self._shape = (len(stacked), self._shape[1])
        self._queue = [rows.clone() for rows in stacked.unbind(1)]


class SingleInFlight(Transform):
    """A transform with at most one result in flight: `pending`, which is `arrived` once it has been waited for."""

    rows: ClassVar[tuple[str, ...]] = ("arrived",)
    shared: ClassVar[tuple[str, ...]] = ("pending",)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self._like, self._shape = v.new_empty(0), v.shape
        self._pending: PendingResult | Tensor | None = None

    def send(self, transform: Transform, vectors: Tensor, communicator: Communicator) -> None:
        """Begin to transform the vectors, whose memory is given away."""
        flow = Flow(stages_of(transform, vectors, communicator))
        self._pending = PendingResult(vectors, flow, communicator, communicator.step)

    def receive(self) -> Tensor:
        """Wait for the result in flight."""
        overlap.drain(self)
        out, self._pending = self._pending, None
        assert isinstance(out, Tensor)
        return out

    def drain(self) -> None:
        if isinstance(self._pending, PendingResult):
            self._pending = self._pending.result()

    @property
    def pending(self) -> bool:
        """Whether a result is in flight, or not used yet."""
        return self._pending is not None

    @pending.setter
    def pending(self, pending: bool) -> None:
        if not pending:
            self._pending = None

    @property
    def arrived(self) -> Tensor:
        """(w, d): what will be used; it is waited for."""
        overlap.drain(self)
        return self._pending if isinstance(self._pending, Tensor) else self._like.new_zeros(self._shape)

    @arrived.setter
    def arrived(self, rows: Tensor) -> None:
        self._pending = rows


@dataclass(frozen=True)
class Exchange:
    """How averages travel in `diloco` and its kin, which say what each of these does: at once and as they are.

    Parameters
    ----------
    delay, ahead : int
        Steps from the sending of an average to its use; by how many it is sent earlier.
    mixing : float
        The weight of a worker's own x where it arrives.
    bits : 4, 8 or None
        That numbers are rounded to.
    """

    delay: int = 0
    mixing: float = 0.0
    bits: Literal[4, 8] | None = None
    ahead: int = 0


class MixedIn(SingleInFlight):
    """x^k <- mixing x^k + (1 - mixing) M(x^{k-delay}) where M was due `delay` steps ago; other steps leave x as it is.

    What M finds travels during `delay` steps and is then mixed with what the workers did meanwhile (arXiv 2501.18512,
    algorithm 2). M works on one vector at a time, so delay is less than its period. Memory: x^{k-delay}, then
    M(x^{k-delay}), until it is used. Sends what M sends, at the same steps.

    Parameters
    ----------
    every : Every
        M and its period.
    delay : int
        After how many steps its result is used.
    mixing : float
        The weight of the worker's own x, in [0, 1]; at 1 only what M remembers moves.
    """

    traits = Traits(needs_everyone=f"{LATE} and mixing=0")

    def __init__(self, every: Every, delay: int, mixing: float) -> None:
        if type(delay) is not int or not 0 <= delay < every.period:
            raise ValueError(
                f"delay must be a whole number from 0 to {every.period - 1}, got {delay!r}: what is sent arrives "
                "before the next is; take a longer period or a shorter delay"
            )
        require.within("[0, 1]", mixing=mixing)
        self.every, self.delay, self.mixing = every, delay, mixing

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        step = communicator.step
        if self.every.due(step):
            self.send(self.every, vectors.clone(), communicator.child("every"))
        if self._pending is None or not self.every.due(step - self.delay):
            return vectors
        out = self.receive()
        return torch.lerp(out, vectors, self.mixing) if self.mixing else out


class Pulled(SingleInFlight):
    """x <- x - pull (x - z), and M(x) is on its way until the next call, which begins with v <- beta v + (M(x) - z) and
    z <- z + v   (arXiv 2002.09539).

    The anchor z is what the first call's workers began with; v = 0 at first.
    Memory: anchor, velocity, and M(x) until it is used. Sends what M sends.

    Parameters
    ----------
    average : Transform
        M, the averaging.
    pull : float
        How far a worker goes to the anchor, in (0, 1].
    beta : float
        The anchor's momentum, in [0, 1).
    """

    rows = ("anchor", "velocity", "arrived")
    traits = Traits(
        needs_everyone="what travels while steps go on comes from those who were there before; give participation=1"
    )

    def __init__(self, average: Transform, pull: float, beta: float) -> None:
        require.within("(0, 1]", pull=pull)
        require.within("[0, 1)", beta=beta)
        self.average, self.pull, self.beta = average, pull, beta

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.anchor, self.velocity = v.clone(), torch.zeros_like(v)

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        if self._pending is not None:
            self.velocity = self.beta * self.velocity + (self.receive() - self.anchor)
            self.anchor = self.anchor + self.velocity
        out = torch.lerp(vectors, self.anchor, self.pull)
        self.send(self.average, out.clone(), communicator.child("average"))
        return out


def _result(correction: PendingResult | Tensor | None) -> Tensor | None:
    return correction.wait() if isinstance(correction, PendingResult) else correction
