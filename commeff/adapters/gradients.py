"""When the gradients of a process leave it, and whether they are then what backward has made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from commeff.adapters.holding import Holding
from commeff.adapters.weights import some
from commeff.communicator import observe
from commeff.core import overlap
from commeff.core.properties import is_rowwise
from commeff.core.strategy import Strategy
from commeff.replicas.arrivals import Arrivals

CHANGED = (
    "the gradients were changed between backward and step; the method averages gradients of all workers, or this "
    "process has a part of its worker's, so this would be another average; to clip them, give clip=NORM (after a "
    "GradScaler too); to change what each process has, give bucket_mb=0"
)


class Gradients:
    """The gradients of a process: sent while backward makes them where they are final then, else at the step.

    Parameters
    ----------
    holding : Holding
        The parameters.
    strategy : Strategy
        The method, in buckets, started.
    early : bool
        Whether any may leave before the step.
    scaled : bool
        Whether they are those of a loss that was scaled, and may not be finite.
    before : callable
        Called before anything is sent.
    unused : bool
        Whether a loss need not depend on every parameter: without a gradient, its gradient is zero.

    Attributes
    ----------
    sent : bool
        Whether any have left since `begin`.
    """

    def __init__(
        self,
        holding: Holding,
        strategy: Strategy,
        early: bool,
        scaled: bool,
        before: Callable[[], None],
        unused: bool,
    ) -> None:
        self._row, self._communicator, self._strategy = holding.local_part.row, holding.communicator, strategy
        self._scaled, self._before, self._unused = scaled, before, unused
        self._parameters = holding.parameters
        awaited = self._row.awaited(overlap.awaited(strategy)) if holding.once else ()
        # Of what a method averages, or ranks of a worker share, a change by hand is noticed, sent early or not.
        self._guarded = holding.once and early and (not is_rowwise(strategy.gradients) or bool(holding.inner))
        spans = awaited or ([(0, holding.computed.d)] if self._guarded else ())
        self._arrivals = Arrivals([holding.parameters], holding.computed, spans)
        self._may_leave = bool(awaited)
        self._early: bool | None = (self._row.takes and self._may_leave) or None  # None: this step will show
        self._row.forget()
        self._quiet = False  # whether what comes is not final
        self.begin()

    @property
    def consumed(self) -> bool:
        """Whether some have left, or are no longer where backward made them."""
        return self._begun or self._row.takes

    def begin(self) -> None:
        """Begin to wait for the gradients of another step."""
        self._posted = self.sent = self._begun = False
        self._listen()

    def _listen(self) -> None:
        if self._quiet:
            self._arrivals.listen(None)
        elif self._early:
            self._arrivals.listen(self._arrived)
        else:
            self._arrivals.listen(self._note_gradients if self._guarded else None, once=False)

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Gradients are not final: another pass will add to them, and nothing is sent."""
        if self.consumed:
            raise RuntimeError(
                "no_sync must be around all passes of a step but the last, got it after that one, or where ranks share "
                "gradients (zero=2 or more), which each pass reduces"
            )
        before, self._quiet = self._quiet, True
        self._listen()
        try:
            yield
        finally:
            self._quiet = before
            self._listen()

    def forget(self, set_to_none: bool) -> None:
        """Drop them all, or make them zero; communication that needs none sets out."""
        if self.sent:
            raise RuntimeError(
                "zero_grad was called after backward, when some gradients had been sent; take the step, or give "
                "bucket_mb=0 to be free to drop them"
            )
        if self._begun:
            overlap.drain(self._strategy.gradients)  # which has counted gradients that are dropped
            self._begun = False
        self._listen()
        self._row.forget()
        if not set_to_none:
            self._row.begin()
        self.post()

    def post(self) -> None:
        """Send what needs no gradient."""
        self._before()
        if not self._posted:
            self._strategy.post(self._row.parameters, self._communicator)
            self._posted = True

    def check(self, writes: int) -> None:
        """Refuse missing gradients, and those changed since backward but for so many writes into them."""
        missing = self._row.missing()
        if missing and self._unused:
            for name in missing:
                self._parameters[name].grad = torch.zeros_like(self._parameters[name])
            return  # these are changes, too
        if missing:
            raise ValueError(
                f"every trainable parameter must have a gradient, got none for {some(missing)}: a step would count it "
                "as zero; use the parameter in the loss, freeze it with requires_grad_(False) before the optimizer is "
                "made, or give find_unused_parameters=True"
            )
        noted = self._guarded and self._arrivals.begun == 1  # a second pass may leave out some of them
        if (self.consumed or noted) and self._row.gradients_changed(writes):
            raise RuntimeError(CHANGED)

    def learn(self, final: bool) -> None:
        """The first step shows whether gradients are final, unless changed, when one backward pass has made them."""
        if self._early is None:
            final = final and self._arrivals.begun == 1
            self._early = self._may_leave and not float(observe(self._communicator, torch.tensor([1.0 - final])))

    def _note_gradients(self, start: int, stop: int) -> None:
        """Note gradients of these columns, which stay until the step."""
        if not self._row.missing():
            with torch.no_grad():
                self._row.note()

    def _arrived(self, start: int, stop: int) -> None:
        """Backward has made the gradients of these columns."""
        with torch.no_grad():
            final = self._row.arrived(start, stop)
            self.post()
            self._begun = True
            for first, last in final if not self._scaled else ():
                self.sent |= overlap.ready(self._strategy, self._row.gradient, first, last, self._communicator)


def read_grad_scaler(
    optimizer: Optimizer, parameters: int, device: torch.device, stay: bool
) -> tuple[Tensor | None, Tensor | None, int]:
    """What a GradScaler has left on an optimizer; RuntimeError where gradients do not `stay` in place until the step.

    Gives whether gradients are not finite (None: no GradScaler calls the step), the scale that they still have to be
    divided by (None: they are unscaled already), and how many writes into them torch has counted since backward.
    """
    overflown, factor = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
    if overflown is None:
        return None, None, 0
    if not stay:
        raise RuntimeError(
            "a GradScaler must have gradients that stay as backward has made them until the step, got some that "
            "were sent or summed before: give it to the first step already, or bucket_mb=0; over a mesh take "
            "precision='fp16' instead"
        )
    probe = torch.zeros(1, device=device)  # how many writes one check counts as depends on the device
    before = probe._version
    torch._amp_foreach_non_finite_check_and_unscale_([probe], torch.zeros_like(probe), torch.ones_like(probe))
    return overflown, factor, (probe._version - before) * parameters
