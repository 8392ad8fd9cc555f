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

`commeff.methods` holds the whole catalogue, `commeff.core.components` the kinds of its parts. Everything here has a
memory, which `commeff.core.saving` saves and restores; what is done to hide communication behind computing is in
`commeff.core.overlap`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from commeff.compressors import DenseMessage, Layout
from commeff.core import overlap, saving
from commeff.core.components import Chain, Component, Encoder, Keep, LocalStep, Transform, stages_of
from commeff.core.curvature import Oracle
from commeff.core.presence import check_absence, rows_of
from commeff.core.state import Scope, Stateful

if TYPE_CHECKING:
    from commeff.communicator import Communicator

__all__ = [
    "Chain",
    "Component",
    "Encoder",
    "Keep",
    "LocalStep",
    "Scope",
    "Stateful",
    "Strategy",
    "Transform",
    "stages_of",
]


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
        if not isinstance(local, LocalStep):
            raise TypeError(
                f"local must be a local step, got a {type(local).__name__}: an optimizer's factory goes into one; give "
                "Local(functools.partial(torch.optim.SGD, lr=0.1))"
            )
        if accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, got {accumulate}: a step needs a minibatch")
        self.local = local
        self.gradients = gradients or Keep()
        self.parameters = parameters or Keep()
        self.accumulate = accumulate
        self._driver: Communicator | None = None
        self._layout: Layout | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self._layout is not None:
            raise TypeError(
                "a strategy that has been started must not be copied: both would step the same optimizers; make a new "
                "one, start it and load_state_dict() of this one"
            )
        return super().__deepcopy__(memo)

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
        self.gradients.start(x.new_zeros(()).expand_as(x), layout, communicator.child("gradients"))
        self.parameters.start(x, layout, communicator.child("parameters"))
        self._layout = layout

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers, in copies: tensors with a row for each hosted worker, and plain values, by name."""
        return saving.save(self, self._begun("state_dict"))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave. Call `start` first; a state of another method is refused."""
        saving.load(self, self._begun("load_state_dict"), state)

    def _begun(self, what: str) -> Layout:
        if self._layout is None:
            raise RuntimeError(
                f"{what} needs a strategy that has been started: call start(x, layout, communicator) first"
            )
        return self._layout

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
        self._begun("step")
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
