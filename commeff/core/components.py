"""What a strategy is made of: local steps, which never see another worker; transforms and encoders, which may.

A transform in *stages* is a generator: it yields a handle wherever its equation needs what others have sent, and is
resumed with the handle's result, so that something else can be done in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from commeff.compressors import Layout, Message
from commeff.core.state import Stateful, Traits
from commeff.optimizers.curvature import Gradients
from commeff.topologies import Topology

if TYPE_CHECKING:
    from commeff.communicator import Communicator, Handle


class LocalStep(Stateful, ABC):
    """x, g -> x: one optimizer step of every hosted worker, with no communication.

    The memory of x is given to the step, which may work in place. Its result may be overwritten by what comes next:
    keep a clone of it.

    Attributes
    ----------
    lr : float
        The learning rate of the step to come.
    """

    lr: float

    @property
    def options(self) -> dict[int, dict[str, Any]]:
        """The options of the step to come, such as lr and weight_decay, by parameter group; they may be replaced."""
        return {0: {"lr": self.lr}}

    @options.setter
    def options(self, options: dict[int, dict[str, Any]]) -> None:
        if options != self.options:
            raise ValueError(f"options must stay {self.options} for a {type(self).__name__}, got {options}")

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


class GradientComparison(Stateful, ABC):
    """x, g -> what there is to send of the gradients: what has changed of them, say, or nothing where it is little.

    It compares them with gradients of another point, of earlier steps or of the same batch, and sends nothing itself.

    Attributes
    ----------
    needs_oracle : bool
        Whether it asks for gradients of a step's batch at another point.
    """

    needs_oracle: ClassVar[bool] = False

    @abstractmethod
    def start(self, x: Tensor, layout: Layout) -> None:
        """Allocate memory for rows like x."""

    @abstractmethod
    def __call__(
        self, x: Tensor, gradient: Tensor, communicator: Communicator, oracle: Gradients | None, moving: Tensor | None
    ) -> Tensor:
        """What there is to send, (w, d), of the gradients at x; rows stay apart. oracle(x): of this batch, at x.
        moving, (w,) bool: who takes a step; None: all do.
        """


class Component(Stateful):
    """A part of a strategy beside the local step: a transform or an encoder."""

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        """Allocate memory, bind compressors, refuse parts that do not fit.

        Starts the transforms and encoders inside with the same v, and refuses an attribute `topology` over another
        number of workers; a component with a memory extends it.

        Parameters
        ----------
        v : (w, d)
            The rows before step 0: the parameters for `parameters`, zeros for `gradients`.
        layout : Layout
            Names and shapes of the columns.
        communicator : Communicator
            The one of this place in the strategy.
        """
        n, topology = communicator.n, getattr(self, "topology", None)
        if isinstance(topology, Topology) and topology.n != n:
            raise ValueError(
                f"the topology must connect the run's {n} workers, got one of {topology.n}: make both equal"
            )
        for name, part in self.parts():
            if isinstance(part, Component):
                part.start(v, layout, communicator.child(name))


Stages = Generator["Handle[Any]", Any, Tensor]


class Flow:
    """Stages under way: they have run up to their first communication, which travels meanwhile.

    Attributes
    ----------
    handle : Handle or None
        What is waited for; None at the end.

    Examples
    --------
    >>> def stages():
    ...     return 2 * (yield Handle(lambda: torch.ones(1)))
    >>> from commeff.communicator import Handle
    >>> import torch
    >>> flow = Flow(stages())
    >>> flow.handle is None, flow.finish()
    (False, tensor([2.]))
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self.handle: Handle[Any] | None = None
        self._result: Tensor
        self.send(None)

    def send(self, arrived: Any) -> None:
        """Resume with what has arrived, up to the next communication."""
        try:
            self.handle = self._stages.send(arrived)
        except StopIteration as end:
            self.handle, self._result = None, end.value

    def finish(self) -> Tensor:
        """Wait for all that is left, and give the result."""
        while self.handle is not None:
            self.send(self.handle.wait())
        return self._result


class Transform(Component):
    """(w, d) -> (w, d), with memory, possibly with communication.

    Write `__call__`, or write `stages`, of which `__call__` then follows. Neither writes into its input; the result is
    the caller's to read.
    """

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        """The transformed rows."""
        return Flow(self.stages(vectors, communicator)).finish()

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        """The same as a generator that pauses where it waits: `mean = yield communicator.post_average(message)`."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__ or stages, got neither")


def stages_of(transform: Transform, vectors: Tensor, communicator: Communicator) -> Stages:
    """A transform in stages, to be used as `yield from`; one that is written as `__call__` never pauses."""
    if type(transform).__call__ is Transform.__call__:
        return (yield from transform.stages(vectors, communicator))
    return transform(vectors, communicator)


@runtime_checkable
class EvaluatedElsewhere(Protocol):
    """A transform whose result is another point than the rows, where gradients are taken (a server's model)."""

    def evaluated(self, x: Tensor, communicator: Communicator) -> Tensor:
        """The rows to evaluate, where workers hold x; x itself, or new memory."""


@runtime_checkable
class Clips(Protocol):
    """A transform that bounds the norm of what it gives.

    Attributes
    ----------
    unclipped_norm : (w, 1) or (1, 1), or None
        Of the last vectors, before; one where they are the same at all workers; None: there were none.
    """

    unclipped_norm: Tensor | None


@runtime_checkable
class AgreesByStep(Protocol):
    """A transform whose parts, or the clock, decide whether its result is equal at all workers."""

    def agrees(self, step: int | None) -> bool:
        """Whether the rows that a step gives are equal at all workers; without a step, whether some step's are."""


def agrees(transform: Transform, step: int | None = None) -> bool:
    """Whether the rows that a step gives are equal at all workers; without a step, whether some step's are."""
    return transform.agrees(step) if isinstance(transform, AgreesByStep) else transform.traits.agrees


class Encoder(Component, ABC):
    """(w, d) -> Message, with memory: what stands between a vector and the wire."""

    @abstractmethod
    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        """The message each hosted worker sends; `purpose` names its stream of randomness."""


class Chain(Transform):
    """v -> last(...(first(v))): transforms one after the other."""

    traits = Traits(rowwise=True)

    def __init__(self, *links: Transform) -> None:
        self.links = links

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        for i, link in enumerate(self.links):
            vectors = yield from stages_of(link, vectors, communicator.child(f"links.{i}"))
        return vectors

    def agrees(self, step: int | None) -> bool:
        return agrees(self.links[-1], step)
