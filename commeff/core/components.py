"""What a strategy is made of: local steps, which never see another worker; transforms and encoders, which may."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from commeff.compressors import Layout, Message
from commeff.core.curvature import Curvature
from commeff.core.overlap import Flow, Stages
from commeff.core.state import Stateful

if TYPE_CHECKING:
    from commeff.communicator import Communicator


class LocalStep(Stateful, ABC):
    """x, g -> x: one optimizer step of every hosted worker, with no communication.

    The memory of x is given to the step, which may work in place. Its result may be overwritten by what comes next:
    keep a clone of it.

    Attributes
    ----------
    lr : float
        The learning rate of the step to come.
    has_one_rate : bool
        Whether memories are in units of it, so that parameter groups must not differ.
    holds_rate : bool
        Whether schedules stay where they are after the call to come, which is not the last of its step.
    """

    lr: float
    has_one_rate: bool = False
    holds_rate: bool = False

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates of all parameter groups."""
        return (self.lr,)

    @property
    def options(self) -> dict[int, dict[str, Any]]:
        """The options of the step to come, such as lr and weight_decay, by parameter group; they may be replaced."""
        return {0: {"lr": self.lr}}

    @options.setter
    def options(self, options: dict[int, dict[str, Any]]) -> None:
        if options != self.options:
            raise ValueError(f"options must stay {self.options} for a {type(self).__name__}, got {options}")

    @property
    def evaluates_elsewhere(self) -> bool:
        """Whether the result is another point than the rows, where gradients are taken (schedule-free)."""
        return any(part.evaluates_elsewhere for _, part in self.parts() if isinstance(part, LocalStep))

    def evaluated(self, x: Tensor) -> Tensor:
        """The rows to evaluate, where workers hold x; x itself, or new memory."""
        return x

    @property
    def curvature(self) -> Curvature | None:
        """What it asks of the loss beside gradients (Sophia)."""
        return None

    @property
    def compares(self) -> bool:
        """Whether it asks for gradients of a step's batch at another point (MARINA)."""
        return False

    def compared(
        self, x: Tensor, gradient: Tensor, communicator: Communicator, oracle: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """What there is to send of the gradients (w, d) at x: themselves. It sends nothing; rows stay apart."""
        return gradient

    def learn(self, estimate: Tensor, active: Tensor | None = None) -> None:
        """Take an estimate of what `curvature` asks for, (w, d); who is not active does not."""
        raise ValueError(f"a {self.kind} must ask for curvature to learn of it, got an estimate unasked")

    @abstractmethod
    def start(self, x: Tensor, layout: Layout) -> None:
        """Allocate memory for rows like x."""

    @abstractmethod
    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        """The rows after the step.

        Parameters
        ----------
        x, gradient : (w, d)
            The rows before the step, and a gradient of each.
        active : (w,) bool, optional
            Rows that are not active neither move nor age; None: all are.
        """


class Component(Stateful):
    """What stands in a strategy beside the local step: transforms and encoders."""

    @property
    def rowwise(self) -> bool:
        """Whether a row of its result follows from that row of its input alone: it sends and remembers nothing."""
        return False

    @property
    def sends(self) -> bool:
        """Whether what workers get of it comes from others."""
        return not self.rowwise

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        """Allocate memory, bind compressors, refuse parts that do not fit.

        Starts the transforms and encoders inside with the same v; a component with a memory extends it.

        Parameters
        ----------
        v : (w, d)
            What counts as returned before step 0.
        layout : Layout
            Names and shapes of the columns.
        communicator : Communicator
            The one of this place in the strategy.
        """
        for name, part in self.parts():
            if isinstance(part, Component):
                part.start(v, layout, communicator.child(name))


class Transform(Component):
    """(w, d) -> (w, d), with memory, possibly with communication.

    Write `__call__`, or write `stages`, of which `__call__` then follows. Neither writes into its input; the result is
    the caller's to read.
    """

    @property
    def evaluates_elsewhere(self) -> bool:
        """Whether the result is another point than the rows, where gradients are taken (a server's model)."""
        return False

    def evaluated(self, x: Tensor, communicator: Communicator) -> Tensor:
        """The rows to evaluate, where workers hold x; x itself, or new memory."""
        return x

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        """The transformed rows."""
        return Flow(self.stages(vectors, communicator)).finish()

    def agrees(self, step: int | None = None) -> bool:
        """Whether the rows that a step gives are equal at all workers; without a step, whether any step's are."""
        return False

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        """The same as a generator that pauses where it waits: `mean = yield communicator.post_average(message)`."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__ or stages, got neither")


def stages_of(transform: Transform, vectors: Tensor, communicator: Communicator) -> Stages:
    """A transform in stages, to be used as `yield from`; one that is written as `__call__` never pauses."""
    if type(transform).__call__ is Transform.__call__:
        return (yield from transform.stages(vectors, communicator))
    return transform(vectors, communicator)


class Encoder(Component, ABC):
    """(w, d) -> Message, with memory: what stands between a vector and the wire."""

    @abstractmethod
    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        """The message each hosted worker sends; `purpose` names its stream of randomness."""


class Keep(Transform):
    """v -> v."""

    @property
    def rowwise(self) -> bool:
        return True

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return vectors


class Chain(Transform):
    """v -> last(...(first(v))): transforms one after the other."""

    def __init__(self, *links: Transform) -> None:
        self.links = links

    @property
    def rowwise(self) -> bool:
        return all(link.rowwise for link in self.links)

    @property
    def sends(self) -> bool:
        return any(link.sends for link in self.links)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        for i, link in enumerate(self.links):
            vectors = yield from stages_of(link, vectors, communicator.child(f"links.{i}"))
        return vectors

    def agrees(self, step: int | None = None) -> bool:
        return self.links[-1].agrees(step)
