"""The whole idea: every method is one sandwich on the matrix of all workers' vectors.

    x  <-  parameters( local( x, gradients( g ) ) )

`local` is an ordinary optimizer step, which never sees another worker; `gradients` and `parameters` are transforms,
stateful maps (w, d) -> (w, d) that may talk through a `Communicator`. Rows are the workers hosted by this process,
columns the d coordinates. A published method is the small thing that stands in one of the three places (see
`commeff.methods`).

What is remembered between steps is declared, not discovered: `rows` names tensors with one row per hosted worker,
`shared` names values that are equal on every process, and every `Stateful` attribute is a part with a memory of its
own. An attribute whose name begins with an underscore is borrowed or can be rebuilt by `start`, and is neither saved
nor copied.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from commeff.compressors import Compressor, Layout, Message
from commeff.core.flow import Flow, Stages

if TYPE_CHECKING:
    from commeff.communicator import Communicator

Scope = Literal["coordinate", "tensor", "whole"]
SCOPES: tuple[Scope, ...] = ("coordinate", "tensor", "whole")


class Stateful:
    """Something with a memory that can be saved, restored and dealt out anew over processes."""

    rows: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[tuple[str, ...]] = ()
    own_scope: ClassVar[Scope] = "coordinate"

    def parts(self) -> Iterator[tuple[str, Stateful]]:
        """The parts that have memories of their own, by name."""
        for name, value in sorted(vars(self).items()):
            if name.startswith("_"):
                continue
            if isinstance(value, Stateful):
                yield name, value
            elif isinstance(value, (list, tuple)):
                yield from ((f"{name}.{i}", part) for i, part in enumerate(value) if isinstance(part, Stateful))

    @property
    def scope(self) -> Scope:
        """What a block of columns may cut: nothing that the widest scope among parts and compressors needs whole."""
        compressors = (value.scope for value in vars(self).values() if isinstance(value, Compressor))
        return max((self.own_scope, *compressors, *(part.scope for _, part in self.parts())), key=SCOPES.index)

    @property
    def remembers(self) -> bool:
        """Whether it or any of its parts has a memory."""
        return bool(self.rows or self.shared) or any(part.remembers for _, part in self.parts())

    def settle(self) -> None:
        """Wait for everything that still travels; what has come is kept for when it is due."""
        for _, part in self.parts():
            part.settle()

    def state_dict(self) -> dict[str, Any]:
        """{"rows": tensors with a leading worker axis, "shared": values equal everywhere, "parts": the same of each
        part}.
        """
        return {
            "rows": {name: copy.deepcopy(getattr(self, name)) for name in self.rows},
            "shared": {name: copy.deepcopy(getattr(self, name)) for name in self.shared},
            "parts": {name: part.state_dict() for name, part in self.parts()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave. Call `start` first; a state of another method is refused."""
        self.settle()
        parts = dict(self.parts())
        found = {*state["rows"], *state["shared"], *state["parts"]}
        wanted = {*self.rows, *self.shared, *parts}
        if found != wanted:
            name = type(self).__name__
            raise ValueError(
                f"the saved state holds {sorted(found)} but {name} remembers {sorted(wanted)}: "
                "it is another method's state"
            )
        for name, value in {**state["rows"], **state["shared"]}.items():
            mine = getattr(self, name)
            if isinstance(mine, Tensor) and mine.shape[:1] == (0,):
                value = value[:0]  # the server's row, which another process hosts
            if isinstance(mine, Tensor) and mine.shape != value.shape:
                raise ValueError(f"the saved {name} has shape {tuple(value.shape)}, this run needs {tuple(mine.shape)}")
            setattr(self, name, copy.deepcopy(value))
        for name, part in parts.items():
            part.load_state_dict(state["parts"][name])

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        for name, value in vars(self).items():
            setattr(twin, name, value if name.startswith("_") else copy.deepcopy(value, memo))
        return twin


class LocalStep(Stateful, ABC):
    """x, g -> x: one optimizer step of every hosted worker, with no communication.

    x is donated: the step may work in place. Its result may be overwritten by what comes next: keep a clone of it.

    Attributes
    ----------
    lr : the learning rate of the step to come.
    """

    lr: float

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates of all parameter groups."""
        return (self.lr,)

    @abstractmethod
    def start(self, x: Tensor, layout: Layout) -> None:
        """Allocate memory for rows like x."""

    @abstractmethod
    def __call__(self, x: Tensor, gradient: Tensor, active: Tensor | None = None) -> Tensor:
        """The rows after the step; rows that are not active neither move nor age."""


class Component(Stateful):
    """What stands in a strategy beside the local step: transforms and encoders."""

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        """Allocate memory, bind compressors, refuse parts that do not fit. v is what counts as returned before step 0.

        Starts the transforms and encoders inside with the same v; a piece with memory extends it.
        """
        for name, part in self.parts():
            if isinstance(part, Component):
                part.start(v, layout, communicator.child(name))


class Transform(Component, ABC):
    """(w, d) -> (w, d), with memory, possibly with communication.

    Never writes into its input; the result is the caller's to read.
    """

    def post(self, x: Tensor, communicator: Communicator) -> None:
        """Start communication early, before the gradient at x is computed. Never needed for correctness."""

    @property
    def awaited(self) -> Sequence[tuple[int, int]]:
        """The spans of columns that can be sent as soon as they are `ready`, if any; known after `start`."""
        return ()

    def ready(self, vectors: Tensor, start: int, stop: int, communicator: Communicator) -> bool:
        """Columns [start, stop) of the rows that the next call gets are final: send what can be sent. Never needed for
        correctness. Says whether anything has been sent, so that all must stay as it is.
        """
        return False

    @abstractmethod
    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        """The transformed rows."""

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        """The same in stages, which pause where they wait for others."""
        return self(vectors, communicator)
        yield

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        """The same, with the input's memory given away: what works in place at memory speed may do so."""
        return self(vectors, communicator)


class Staged(Transform):
    """A transform that is written in stages: `arrived = yield communicator.post_average(message)`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__call__" in vars(cls):
            raise TypeError(
                f"{cls.__name__} overrides __call__, but what runs in blocks and ahead of time is stages(): write "
                "that, or derive from Transform"
            )

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return Flow(self.stages(vectors, communicator)).finish()

    @abstractmethod
    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        """The transformed rows, in stages."""


class Encoder(Component, ABC):
    """(w, d) -> Message, with memory: what stands between a vector and the wire."""

    @abstractmethod
    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        """The message each hosted worker sends; `purpose` names its stream of randomness."""


class Keep(Transform):
    """v -> v."""

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return vectors


class Chain(Staged):
    """v -> last(...(first(v))): transforms one after the other."""

    def __init__(self, *links: Transform) -> None:
        self.links = links

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        for i, link in enumerate(self.links):
            vectors = yield from link.stages(vectors, communicator.child(f"links.{i}"))
        return vectors


class Strategy(Stateful):
    """x <- parameters(local(x, gradients(g))): a method, ready to be driven.

    Parameters
    ----------
    local : the optimizer step.
    gradients, parameters : what happens to the gradients before it and to the parameters after it.
    accumulate : how many minibatch gradients the driver averages into one step's gradient (NEOLITHIC).

    >>> from functools import partial
    >>> from commeff import Communicator, Layout, methods
    >>> strategy = methods.psgd(partial(torch.optim.SGD, lr=0.5))
    >>> communicator, x = Communicator(workers=2), torch.zeros(2, 1)
    >>> strategy.start(x, Layout.flat(1), communicator)
    >>> for communicator.step in range(20):
    ...     x = strategy.step(x, x - torch.tensor([[1.0], [3.0]]), communicator)
    >>> x.round(decimals=3).tolist()
    [[2.0], [2.0]]
    """

    def __init__(
        self,
        local: LocalStep,
        gradients: Transform | None = None,
        parameters: Transform | None = None,
        accumulate: int = 1,
    ) -> None:
        if accumulate < 1:
            raise ValueError(f"a step over {accumulate} minibatches was asked for; it takes at least 1")
        self.local = local
        self.gradients = gradients or Keep()
        self.parameters = parameters or Keep()
        self.accumulate = accumulate

    def start(self, x: Tensor, layout: Layout, communicator: Communicator) -> None:
        """Allocate every memory for rows like x and refuse parts that do not fit together."""
        if x.ndim != 2 or x.shape != (len(communicator.workers), layout.d):
            raise ValueError(
                f"x has shape {tuple(x.shape)}; {len(communicator.workers)} hosted workers with {layout.d} coordinates "
                "need one row each"
            )
        communicator.device = x.device
        self.local.start(x, layout)
        self.gradients.start(torch.zeros_like(x), layout, communicator.child("gradients"))
        self.parameters.start(x, layout, communicator.child("parameters"))

    def post(self, x: Tensor, communicator: Communicator) -> None:
        """Start what communication needs only x, before the gradient is computed."""
        self.parameters.post(x, communicator.child("parameters"))

    @property
    def awaited(self) -> Sequence[tuple[int, int]]:
        """The spans of columns whose gradients can be sent as soon as they are `ready`, if any; known after `start`."""
        return self.gradients.awaited

    def ready(self, gradient: Tensor, start: int, stop: int, communicator: Communicator) -> bool:
        """Columns [start, stop) of the gradient that `step` will get are final: send what can be sent. Says whether
        anything has been sent.
        """
        return self.gradients.ready(gradient, start, stop, communicator.child("gradients"))

    def step(
        self,
        x: Tensor,
        gradient: Tensor,
        communicator: Communicator,
        oracle: Callable[[Tensor], Tensor] | None = None,
        *,
        donate: bool = False,
    ) -> Tensor:
        """One model update; rows that are equal may come back as views of one row.

        x is left alone and a result is never touched again, unless `donate` gives x's memory away (which views of one
        row have not). oracle(x) is the gradient of the same batch elsewhere, offered to methods that ask for it.
        """
        if gradient.shape != x.shape:
            given, needed = tuple(gradient.shape), tuple(x.shape)
            raise ValueError(f"gradients of shape {given} for x of shape {needed}; give one row a worker")
        own = x if donate and x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
        moved = self.local(own, self.gradients(gradient, communicator.child("gradients")), communicator.active)
        # What the local step returns is ours to give away only if it is the memory that we gave it.
        finish = self.parameters.donated if moved.data_ptr() == own.data_ptr() else self.parameters
        out = finish(moved, communicator.child("parameters"))
        if out.shape != x.shape:
            raise ValueError(
                f"a step made {tuple(out.shape)} of x of shape {tuple(x.shape)}; transforms keep the shape"
            )
        return out
