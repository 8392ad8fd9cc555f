"""What a method sends and remembers on any part of a model, exactly as its `commeff.profile` says, for many at once.

Playing a strategy takes milliseconds and a search prices 300,000 policies a second, so not every part of the model is
played. Three parts are, and say on what the bytes of the method depend:

    numbers alone and linearly       most methods without a compressor:  bytes = a + b d, no more is played
    numbers alone                    compressors of whole vectors:       a bare vector of d numbers is played for each d
    shapes                           low ranks, compressors by tensor:   three numbers of layers are played for each
                                     tensor degree, and lie on a line or every part is played

and where what is sent is the same among two workers as among n, parts are played among two.

A rank talks with those that hold the same part in other workers. Gradients travel in the width in which they are
summed, parameters in that of the weights, and what is remembered is fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from commeff.cluster.billing import message_bytes
from commeff.compressors import Layout
from commeff.core import Strategy
from commeff.planner.model import Model
from commeff.planner.model_part import ModelPart, part_numbers
from commeff.planner.policies import STATES
from commeff.planner.worker_method import WorkerMethod
from commeff.profiling import Operation, Profile, profile
from commeff.profiling.coding import Coding
from commeff.topologies import MixingMatrix
from commeff.transforms import bucketed

PROBES = ((ModelPart(1, 1, 0), 1), (ModelPart(1, 2, 1), 6), (ModelPart(1, 3, 1), 3))  # and the rest of d by 8
LAYERS = (1, 2, 3)  # with which a part is played where shapes matter
DIGITS = 3  # of a share: what lies beside the numbers, such as a push-sum weight, is none


class Sent(NamedTuple):
    """A message sent once in a period.

    Attributes
    ----------
    kind, rounds, matrix : as of an `Operation`.
    slot : "gradients" or "parameters".
    windows : in how many steps all computing can hide it.
    shards, coding : as of an `Operation`.
    share : coordinates of a message, in units of those of the whole vector.
    """

    kind: str
    rounds: int
    matrix: MixingMatrix | None
    slot: str
    windows: int
    shards: int
    coding: Coding | None
    share: float


class Pattern(NamedTuple):
    """What does not depend on the part of the model.

    Attributes
    ----------
    sent : in a period.
    period : in steps.
    talking, mixing : shares of the steps in which anything is sent, and in which parameters are.
    """

    sent: tuple[Sent, ...]
    period: int
    talking: float
    mixing: float


class Sheet(NamedTuple):
    """A method on a part of a model.

    Attributes
    ----------
    pattern : of what is sent.
    bytes : of one message in one round, of each of `pattern.sent`; then of what a rank remembers beside the states of
        the optimizer.
    """

    pattern: Pattern
    bytes: tuple[float, ...]


@dataclass(frozen=True)
class WorkerProfile:
    """A method among so many workers, which train a model at a precision; `of` gives the same one for the same.

    Examples
    --------
    >>> from functools import partial
    >>> from commeff.compressors import ScaledSign
    >>> from commeff.methods import mem_sgd
    >>> model = Model(layers=4, hidden=64, heads=4, sequence=32, vocab=100)
    >>> def signs(workers):
    ...     return mem_sgd(partial(torch.optim.SGD, lr=0.1), ScaledSign())
    >>> signed = WorkerProfile.of(WorkerMethod(signs), model, "bf16", workers=8)
    >>> part = ModelPart(tensor=2, layers=2, embeddings=1)
    >>> signed.depends, signed.sheet(part).bytes[-1] / part.layout(model).d
    ('numbers', 4.0)
    """

    method: WorkerMethod
    model: Model
    precision: str
    workers: int

    @classmethod
    def of(cls, method: WorkerMethod, model: Model, precision: str, workers: int) -> WorkerProfile:
        """What a search makes of it makes no difference here."""
        return _remembered(replace(method, steps=1.0, most_workers=None), model, precision, int(workers))

    @cached_property
    def refusal(self) -> str | None:
        """Why there is no such method among so many workers, if there is none."""
        try:
            self._probed(0)
        except ValueError as error:
            reason = " ".join(str(error).split())
            return f"method={self.method.name} must take the workers, got workers={self.workers}: {reason}"
        return None

    @cached_property
    def _two(self) -> WorkerProfile:
        return self.of(self.method, self.model, self.precision, 2)

    @cached_property
    def like(self) -> WorkerProfile:
        """The method among two if as many workers send what two do, else among as many."""
        if self.workers == 2:
            return self
        sheet, pair = self._probed(0), self._two
        alike = all(s.matrix is None for s in sheet.pattern.sent) and not pair.refusal and pair._probed(0) == sheet
        return pair if alike else self

    @cached_property
    def _few(self) -> WorkerProfile:
        """Among two, if there is such a method: how a message follows from shapes is the same among many."""
        return self._two if self._two.refusal is None else self.like

    @cached_property
    def codecs(self) -> list[str]:
        """What makes its messages, as `Coding` names it; nothing where whole vectors are sent."""
        return [*dict.fromkeys(sent.coding.codec for sent in self._probed(0).pattern.sent if sent.coding)]

    @cached_property
    def hides(self) -> bool:
        """Whether gradients can leave block by block while others are computed."""
        layout = _probe(self.model, 0)
        try:
            played = self._few._profile(layout, torch.float32, megabytes=4 * layout.d / 1e6 / 2)
        except ValueError:
            return False
        return any(operation.bucketed for operation in _sent(played))

    @cached_property
    def depends(self) -> Literal["line", "numbers", "shapes"]:
        """On what the bytes depend: on d alone and linearly, on d alone, or on the shapes of the tensors."""
        few, sizes = self._few, [_probe(self.model, i).d for i in range(3)]
        try:
            shaped = [few._probed(i) for i in range(3)]
            flat = [_play(few, Layout.flat(d)) for d in sizes[:2]]
        except ValueError:
            return "shapes"
        if flat != shaped[:2]:
            return "shapes"
        return "line" if _extended(sizes[:2], shaped[:2], sizes[2]) == shaped[2] else "numbers"

    @cached_property
    def line(self) -> tuple[Pattern, NDArray[np.float64], NDArray[np.float64]]:
        """Where `depends` says line: the pattern, and a and b of every entry of `Sheet.bytes`, a + b d."""
        sizes = [_probe(self.model, i).d for i in (0, 1)]
        sheets = [self.like._probed(i) for i in (0, 1)]
        low, high = (np.array(_extended(sizes, sheets, d).bytes) for d in (0, 1))
        return sheets[0].pattern, low, high - low

    def sheet(self, part: ModelPart) -> Sheet:
        """The bytes that so many workers send and remember of a part of the model."""
        if self.depends == "shapes":
            return self.like._on_shapes(part)
        numbers = part_numbers(self.model, np.array(part.tensor), part.layers, part.embeddings)
        return _play(self.like, Layout.flat(int(numbers)))

    def _on_shapes(self, part: ModelPart) -> Sheet:
        numbers = [self.model.expert_every * layers for layers in LAYERS]
        if part.layers > max(numbers):
            few = [self._on_shapes(part._replace(layers=layers)) for layers in numbers]
            if _extended(numbers[:2], few[:2], numbers[2]) == few[2]:
                return _extended(numbers[:2], few[:2], part.layers)
        return _play(self, part.layout(self.model))

    def _probed(self, which: int) -> Sheet:
        return _play(self, _probe(self.model, which))

    def _profile(self, layout: Layout, dtype: torch.dtype, megabytes: float = 0.0) -> Profile:
        strategy = bucketed(_strategy(self.method, self.workers), megabytes)
        return profile(strategy, layout, self.workers, collective=self.method.collective, dtype=dtype)


_remembered = cache(WorkerProfile)


@cache
def _probe(model: Model, which: int) -> Layout:
    """A layout with the shapes of the model, whose d is no multiple of anything."""
    part, rest = PROBES[which]
    whole = part.layout(model)
    tensors = [(field.name, field.shape) for field in whole.fields]
    return Layout.of([*tensors, ("spare", ((rest - whole.d) % 8,))])


def _extended(places: Sequence[int], sheets: Sequence[Sheet], place: int) -> Sheet:
    """The sheet at a third place on the line through two; an empty one if they have different patterns."""
    (a, b), (first, second) = places, sheets
    if first.pattern != second.pattern:
        return Sheet(first.pattern, ())
    share = Fraction(place - a, b - a)
    along = (Fraction(x) + share * (Fraction(y) - Fraction(x)) for x, y in zip(first.bytes, second.bytes, strict=True))
    return Sheet(first.pattern, tuple(map(float, along)))


@cache
def _strategy(method: WorkerMethod, workers: int) -> Strategy:
    """One for all parts of a model, so that its mixing matrices are the same objects; playing leaves it as it was."""
    return method.strategy(workers)


def _sent(played: Profile) -> list[Operation]:
    """The messages of one period, in order, without those that reach nobody."""
    return [operation for operation in played.typical if operation.rounds]


@cache
def _play(of: WorkerProfile, layout: Layout) -> Sheet:
    """The sheet of a layout: each slot at the width in which it travels, memory in fp32."""
    weights, gradients, _ = STATES[of.precision]
    widths = {"gradients": gradients, "parameters": weights}
    wide = of._profile(layout, torch.float32)
    sent = _sent(wide)
    if any(widths[operation.slot] == 2 for operation in sent):
        half = torch.float16 if of.precision == "fp16" else torch.bfloat16
        short = _sent(of._profile(layout, half))
        sent = [b if widths[a.slot] == 2 else a for a, b in zip(sent, short, strict=True)]
    entries = tuple(
        Sent(
            op.kind,
            op.rounds,
            op.matrix,
            op.slot,
            int(op.early) + op.waited - op.step,
            op.shards,
            op.coding,
            round(op.coordinates / layout.d, DIGITS) if op.coding else 0.0,
        )
        for op in sent
    )
    share = {step: {op.slot for op in sent if op.step == step} for step in {op.step for op in sent}}
    pattern = Pattern(
        entries,
        wide.period,
        talking=len(share) / wide.period,
        mixing=sum("parameters" in slots for slots in share.values()) / wide.period,
    )
    memory = sum(wide.memory_bytes.values()) - wide.host_bytes + wide.server_bytes
    return Sheet(pattern, (*map(message_bytes, sent), float(memory)))
