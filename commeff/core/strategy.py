"""The whole idea: every method is one sandwich on the matrix of all workers' vectors.

    x  <-  parameters( local( x, gradients( g ) ) )

`local` is an ordinary optimizer step, which never sees another worker; `gradients` and `parameters` are transforms,
stateful maps (w, d) -> (w, d) that may communicate. Rows are the workers hosted by this process, columns the d
coordinates. Three classical methods are three fillings:

    parallel SGD   Strategy(Local(sgd), gradients=Average())
                   x_i <- x_i - lr (1/n) sum_j g_j

    gossip SGD     Strategy(Local(sgd), parameters=Gossip(topology))
                   x_i <- sum_j W[i, j] (x_j - lr g_j)

    DiLoCo         Strategy(Local(adam), parameters=Every(H, Outer(Local(nesterov), Average())))
                   x_i <- adam(x_i, g_i), and every H steps  x_i <- a <- nesterov(a, a - (1/n) sum_j x_j)

`commeff.methods` holds the whole catalogue. Everything here has a memory, which `commeff.core.state` saves and
restores; what is done to hide communication behind computing is in `commeff.core.overlap`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from commeff.compressors import DenseMessage, Layout, Message
from commeff.core import overlap
from commeff.core.curvature import Curvature, Oracle
from commeff.core.overlap import Flow, Stages
from commeff.core.presence import check_absence, rows_of
from commeff.core.state import Scope, Stateful

if TYPE_CHECKING:
    from commeff.communicator import Communicator

__all__ = ["Chain", "Component", "Encoder", "Keep", "LocalStep", "Scope", "Stateful", "Strategy", "Transform"]


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


class Strategy(Stateful):
    """x <- parameters(local(x, gradients(g))): a method, ready to be driven.

    Parameters
    ----------
    local : LocalStep
        The optimizer step.
    gradients, parameters : Transform, optional
        What happens to the gradients before it and to the parameters after it; nothing unless given.
    accumulate : int
        How many minibatch gradients the driver averages into one step's gradient (NEOLITHIC).

    Examples
    --------
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
            raise ValueError(f"accumulate must be at least 1, got {accumulate}: a step needs a minibatch")
        self.local = local
        self.gradients = gradients or Keep()
        self.parameters = parameters or Keep()
        self.accumulate = accumulate
        self._driver: Communicator | None = None

    @property
    def driver(self) -> Communicator | None:
        """The communicator of the optimizer that has it now, if any."""
        return self._driver

    @driver.setter
    def driver(self, communicator: Communicator) -> None:
        self._driver = communicator

    def start(self, x: Tensor, layout: Layout, communicator: Communicator) -> None:
        """Allocate every memory for rows like x and refuse parts that do not fit together."""
        if x.ndim != 2 or x.shape != (len(communicator.workers), layout.d):
            needed = (len(communicator.workers), layout.d)
            raise ValueError(f"x must have shape {needed}, got {tuple(x.shape)}: give one row for each hosted worker")
        communicator.lay(x, layout)
        self.local.start(x, layout)
        self.gradients.start(torch.zeros_like(x), layout, communicator.child("gradients"))
        self.parameters.start(x, layout, communicator.child("parameters"))

    def agrees(self, step: int | None = None) -> bool:
        """Whether all workers that take part have the same parameters after a step; without one, after any step.

        Gradients that are averaged at every step keep equal workers equal, optimizers and all.
        """
        return self.parameters.agrees(step) or (self.parameters.rowwise and self.gradients.agrees())

    @property
    def evaluates_elsewhere(self) -> bool:
        """Whether the result is another point than the rows, where gradients are taken."""
        return self.local.evaluates_elsewhere or self.parameters.evaluates_elsewhere

    def evaluated(self, x: Tensor, communicator: Communicator) -> Tensor:
        """The rows to evaluate, where workers hold x. Every process calls it."""
        return self.parameters.evaluated(self.local.evaluated(x), communicator.child("parameters"))

    def post(self, x: Tensor, communicator: Communicator) -> None:
        """Start what communication needs only x, before the gradient is computed. Never needed for correctness."""
        if communicator.active is None:
            overlap.post(self.parameters, x, communicator.child("parameters"))

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

        Parameters
        ----------
        x, gradient : (w, d)
            The parameters of the hosted workers, and a gradient at each.
        communicator : Communicator
            Its clock `step` is the number of this step.
        oracle : callable, optional
            oracle(x) is the gradient of the same batch elsewhere, offered to methods that need it. An `Oracle` knows
            the curvature too, which some optimizers ask for.
        donate : bool
            Give the memory of x away, to work in place. Otherwise x is left alone, and a result is never touched again.
        """
        if gradient.shape != x.shape:
            raise ValueError(
                f"gradient must have the shape of x, {tuple(x.shape)}, got {tuple(gradient.shape)}: "
                "give one row a worker"
            )
        self.look(x, communicator, oracle)
        gradient = self.local.compared(x, gradient, communicator, oracle)
        own = x if donate and x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
        if communicator.active is not None:
            return self._step_of_present(own, gradient, communicator, communicator.active)
        averaged = self.gradients(gradient, communicator.child("gradients"))
        moved = self.local(own, averaged, communicator.moving)
        below = communicator.child("parameters")
        # What the local step returns is ours to give away only if it is the memory that we gave it.
        ours = moved.data_ptr() == own.data_ptr()
        out = overlap.donate(self.parameters, moved, below) if ours else self.parameters(moved, below)
        if out.shape != x.shape:
            raise ValueError(
                f"a transform must keep the shape {tuple(x.shape)}, got {tuple(out.shape)}: give one row a worker"
            )
        return out

    def _step_of_present(self, x: Tensor, gradient: Tensor, communicator: Communicator, active: Tensor) -> Tensor:
        """The same of the workers who are there; the other rows stay as they are. The memory of x is given away."""
        check_absence(self)
        here = communicator.present()
        if not here.n:
            return self.local(x, gradient, communicator.moving)  # rates and periods go on by the clock
        averaged = self._among(self.gradients, gradient, here.child("gradients"), active)
        moved = self.local(x, averaged, communicator.moving)
        return self._among(self.parameters, moved, here.child("parameters"), active)

    @staticmethod
    def _among(transform: Transform, vectors: Tensor, communicator: Communicator, active: Tensor) -> Tensor:
        """A transform of the rows of those who are there, whose `communicator` this is."""
        if transform.rowwise:
            return transform(vectors, communicator)
        with rows_of(transform, active, vectors.shape[1]):
            out = vectors.clone()
            out[active] = transform(vectors[active], communicator)
        return out

    def look(self, x: Tensor, communicator: Communicator, oracle: Callable[[Tensor], Tensor] | None = None) -> None:
        """Tell the local step of the curvature, if it asks: of all workers' mean where gradients travel, else of its
        own. `step` does so itself.
        """
        curvature = self.local.curvature
        if curvature is None or not curvature.due(communicator):
            return
        if not isinstance(oracle, Oracle):
            raise ValueError(
                f"{self.local.kind} must know the curvature of the loss, got "
                f"{'no oracle' if oracle is None else 'an oracle of gradients alone'}: use commeff.train, or give "
                "step(oracle=), a commeff.core.curvature.Oracle"
            )
        here = communicator.present().child("gradients").child("curvature")
        if curvature.kind == "gauss_newton":
            estimate = oracle.gauss_newton(x)
        else:
            signs = (
                (communicator.child("gradients").child("curvature").random("signs").uniform(x.shape[1]) < 0.5)
                .to(x)
                .mul_(2)
                .sub_(1)
            )
            estimate = signs * oracle.hessian_product(x, signs)
        active = communicator.active
        if self.gradients.sends and active is None:
            estimate = here.average(DenseMessage.of(estimate))
        elif self.gradients.sends and here.n:
            estimate[active] = here.average(DenseMessage.of(estimate[active]))
        self.local.learn(estimate, communicator.moving)
