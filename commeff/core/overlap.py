"""How communication hides behind computing. No method needs any of it: results are the same without.

A few transforms can do more than be called, and may be any of these four; a transform says so by having the methods.

    StartsEarly      can send before the gradient is computed, because it needs x alone      (`Ahead`)
    SendsBlocks      can send a block of columns while the rest is still computed            (`Blocks`)
    WorksInPlace     can use the memory of its input for the result                          (`Gossip`, `Ahead`)
    TravelsOn        has messages that travel when a step is over                            (`Delayed`)

Whoever drives a strategy asks the functions below, which have an answer for all others too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from torch import Tensor

from commeff.core.state import Stateful, walk

if TYPE_CHECKING:
    from commeff.communicator import Communicator
    from commeff.core.components import Transform
    from commeff.core.strategy import Strategy


@runtime_checkable
class StartsEarly(Protocol):
    """A transform that can start before the local step's result is there."""

    def post(self, x: Tensor, communicator: Communicator) -> None:
        """Start communication before the gradient at x is computed."""


@runtime_checkable
class SendsBlocks(Protocol):
    """A transform that can send some columns before the others are there."""

    def awaited(self) -> Sequence[tuple[int, int]]:
        """The spans of columns that can be sent as soon as they are `ready`, if any; known after `start`."""

    def ready(self, vectors: Tensor, start: int, stop: int, communicator: Communicator) -> bool:
        """Columns [start, stop) of the rows that the next call gets are final: send what can be sent.

        Returns whether anything has been sent, so that all must stay as it is.
        """


@runtime_checkable
class WorksInPlace(Protocol):
    """A transform that can work in the memory of its input."""

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        """The transformed rows; the memory of the input is given away."""


@runtime_checkable
class TravelsOn(Protocol):
    """A transform whose messages may still travel when its call, or a step, is over."""

    def drain(self) -> None:
        """Wait for them; what has arrived is kept until it is due."""


def drain(part: Stateful) -> None:
    """Wait for everything of a part that still travels; what has arrived is kept until it is due."""
    for _, inner in walk(part):
        if isinstance(inner, TravelsOn):
            inner.drain()


def _can(transform: Transform, ability: type) -> bool:
    kind: Any = type(transform)
    return _has(kind, ability)


@cache
def _has(kind: type, ability: type) -> bool:
    """Whether a kind of transform has an ability; one that computes something else than its base may not inherit it."""

    def age(method: str) -> int:
        """The number of generations ago that it was defined: 0 in the class itself."""
        return next(age for age, base in enumerate(kind.__mro__) if method in vars(base))

    methods = [name for name in vars(ability) if not name.startswith("_")]
    return issubclass(kind, ability) and max(map(age, methods)) <= min(age("__call__"), age("stages"))


def early(transform: Transform) -> Callable[[Tensor, Communicator], None] | None:
    """What starts the communication that needs x alone, before the gradient is computed; None: there is none."""
    return cast(StartsEarly, transform).post if _can(transform, StartsEarly) else None


def in_place(transform: Transform) -> Callable[[Tensor, Communicator], Tensor]:
    """The transform, to which the memory of its input is given away."""
    return cast(WorksInPlace, transform).donated if _can(transform, WorksInPlace) else transform


def awaited(strategy: Strategy) -> Sequence[tuple[int, int]]:
    """The spans of columns whose gradients can be sent as soon as they are `ready`, if any; known after `start`."""
    gradients = strategy.gradients
    early = strategy.comparison is None and _can(gradients, SendsBlocks)  # else what is sent is known at the end
    return cast(SendsBlocks, gradients).awaited() if early else ()


def ready(strategy: Strategy, gradient: Tensor, start: int, stop: int, communicator: Communicator) -> bool:
    """Columns [start, stop) of the gradient that the next step gets are final: send what can be sent.

    Returns whether anything has been sent, so that all must stay as it is.
    """
    if communicator.context.active is not None or not awaited(strategy):
        return False
    return cast(SendsBlocks, strategy.gradients).ready(gradient, start, stop, communicator.child("gradients"))
