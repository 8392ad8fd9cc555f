"""How communication hides behind computing. No method needs any of it: results are the same without.

A few transforms can do more than be called, and may be any of these three; a transform says so by having the methods.

    StartsEarly      can send before the gradient is computed, because it needs x alone      (`Ahead`)
    SendsBlocks      can send a block of columns while the rest is still computed            (`Blocks`)
    WorksInPlace     can use the memory of its input for the result                          (`Gossip`, `Ahead`)

Whoever drives a strategy calls the functions below, which do nothing for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from torch import Tensor

if TYPE_CHECKING:
    from commeff.communicator import Communicator
    from commeff.core.strategy import Strategy, Transform


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


def _can(transform: Transform, ability: type) -> bool:
    kind: Any = type(transform)
    return _has(kind, ability)


@cache
def _has(kind: type, ability: type) -> bool:
    """Whether a kind of transform has an ability; one that computes something else than its base may not inherit it."""
    if not issubclass(kind, ability):
        return False
    methods = [name for name in vars(ability) if not name.startswith("_")]
    return max(map(partial(_age, kind), methods)) <= min(_age(kind, "__call__"), _age(kind, "stages"))


def _age(kind: type, method: str) -> int:
    """How many generations ago a method was defined: 0 in the class itself."""
    return next(age for age, base in enumerate(kind.__mro__) if method in vars(base))


def post(transform: Transform, x: Tensor, communicator: Communicator) -> None:
    """Start what communication needs only x, before the gradient is computed."""
    if _can(transform, StartsEarly):
        cast(StartsEarly, transform).post(x, communicator)


def donate(transform: Transform, vectors: Tensor, communicator: Communicator) -> Tensor:
    """The transformed rows; the memory of the input is given away."""
    if _can(transform, WorksInPlace):
        return cast(WorksInPlace, transform).donated(vectors, communicator)
    return transform(vectors, communicator)


def awaited(strategy: Strategy) -> Sequence[tuple[int, int]]:
    """The spans of columns whose gradients can be sent as soon as they are `ready`, if any; known after `start`."""
    gradients = strategy.gradients
    return cast(SendsBlocks, gradients).awaited() if _can(gradients, SendsBlocks) else ()


def ready(strategy: Strategy, gradient: Tensor, start: int, stop: int, communicator: Communicator) -> bool:
    """Columns [start, stop) of the gradient that the next step gets are final: send what can be sent.

    Returns whether anything has been sent, so that all must stay as it is.
    """
    gradients = strategy.gradients
    if not _can(gradients, SendsBlocks):
        return False
    return cast(SendsBlocks, gradients).ready(gradient, start, stop, communicator.child("gradients"))
