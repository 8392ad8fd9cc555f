"""What holds of a part of a strategy and of all that is inside it; what is asked of the optimizers inside a step."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from commeff.compressors import Compressor, Scope
from commeff.compressors.base import coarsest
from commeff.core.components import Clips, Component, LocalStep
from commeff.core.events import OwnPace
from commeff.core.factories import equal_rates
from commeff.core.local import Local
from commeff.core.state import Stateful, walk


def contents(part: Stateful) -> Iterator[Stateful]:
    """The parts of a part, and what each of its blocks is a copy of, which it has before it starts."""
    yield from (inner for _, inner in part.parts())
    yield from (value for name, value in vars(part).items() if name[0] == "_" and isinstance(value, Component))


def scope_of(part: Stateful) -> Scope:
    """The unit that blocks of columns must not cut: the widest scope of a part, its compressors and its parts."""
    compressors = (value.scope for value in vars(part).values() if isinstance(value, Compressor))
    return coarsest(part.traits.scope, *compressors, *(scope_of(inner) for _, inner in part.parts()))


def remembers(part: Stateful) -> bool:
    """Whether a part or anything inside it has a memory."""
    return any(inner.rows or inner.shared for _, inner in walk(part))


def is_rowwise(part: Stateful) -> bool:
    """Whether a row of a result follows from that row of the input alone: nothing is sent and remembered."""
    return part.traits.rowwise and all(is_rowwise(inner) for inner in contents(part))


def sends(part: Stateful) -> bool:
    """Whether workers get something from others by a part."""
    direct = part.traits.sends and not part.traits.rowwise
    return direct or any(sends(inner) for inner in contents(part) if isinstance(inner, Component))


def unclipped_norm(part: Stateful) -> Tensor | None:
    """The norm of the vectors that a part has bounded last, (w, 1) or (1, 1), before; None: it has bounded none."""
    return part.unclipped_norm if isinstance(part, Clips) else None


def own_pace(part: Stateful) -> OwnPace | None:
    """The first part inside whose workers do not go in step; None: all do."""
    return next((inner for _, inner in walk(part) if isinstance(inner, OwnPace)), None)


def optimizers_in(local: LocalStep) -> Iterator[Local]:
    """The steps of torch's optimizers in a local step, the outermost first."""
    return (part for _, part in walk(local) if isinstance(part, Local))


def learner_of(local: LocalStep) -> Local | None:
    """The step inside that asks for the curvature; None: none does."""
    return next((step for step in optimizers_in(local) if step.curvature is not None), None)


def kind_of(part: object) -> str:
    """The kind of a part, in a word: a local step's optimizer, or its class."""
    return part.kind if isinstance(part, Local) else type(part).__name__


def evaluates_elsewhere(local: LocalStep) -> bool:
    """Whether a step's result is another point than the rows, where gradients are taken (schedule-free)."""
    return any(step.evaluates_elsewhere for step in optimizers_in(local))


def rows_to_evaluate(local: LocalStep, x: Tensor) -> Tensor:
    """The rows to evaluate, where workers hold x: x itself, or new memory."""
    return next((step.evaluated(x) for step in optimizers_in(local) if step.evaluates_elsewhere), x)


def require_one_rate(local: LocalStep) -> None:
    """Refuse parameter groups of different learning rates, now and later: one rate is the unit of a memory."""
    for step in optimizers_in(local):
        step.has_one_rate = True
    equal_rates(local.options)


def hold_rates(local: LocalStep, held: bool) -> None:
    """Whether schedules stay where they are after the step to come."""
    for step in optimizers_in(local):
        step.holds_rate = held


def require_plain_sgd(local: LocalStep, why: str) -> None:
    """Refuse a local step that is not x - lr gradient, and says why it has to be."""
    options, kind = local.options.values(), kind_of(local)
    extra = sorted({name for chosen in options for name in ("momentum", "weight_decay") if chosen.get(name)})
    if kind != "SGD" or extra:
        got = f"SGD with {' and '.join(extra)}" if kind == "SGD" else kind
        raise ValueError(f"optimizer must be plain SGD, got {got}: {why}; choose SGD without momentum and weight decay")
