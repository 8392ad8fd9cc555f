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

A method whose messages depend on how gradients have changed fills one more slot: gradients(comparison(x, g)).

    LAG            Strategy(Local(sgd), comparison=IfChanged(...), gradients=LazyMean())

`commeff.methods` holds the whole catalogue, `commeff.core.components` the kinds of its parts. Everything here has a
memory, which `commeff.core.saving` saves and restores; what is done to hide communication behind computing is in
`commeff.core.overlap`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core import overlap, saving
from commeff.core.components import (
    Chain,
    Component,
    Encoder,
    EvaluatedElsewhere,
    GradientComparison,
    Gradients,
    LocalStep,
    Stages,
    Transform,
    agrees,
    stages_of,
)
from commeff.core.local import Local
from commeff.core.presence import step_of_present
from commeff.core.properties import evaluates_elsewhere, is_rowwise, learner_of, rows_to_evaluate, sends
from commeff.core.state import Stateful, Timetable, Traits
from commeff.optimizers.curvature import estimate

__all__ = [
    "Chain",
    "Component",
    "Encoder",
    "GradientComparison",
    "Gradients",
    "Keep",
    "LocalStep",
    "Stages",
    "Stateful",
    "Strategy",
    "Timetable",
    "Traits",
    "Transform",
    "agrees",
    "stages_of",
    "with_transforms",
]


class Keep(Transform):
    """v -> v."""

    traits = Traits(rowwise=True)

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return vectors


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
    comparison : GradientComparison, optional
        What looks at x and g before anything is sent, for gradients(comparison(x, g)) (LAG, MARINA).

    Attributes
    ----------
    driver : Communicator or None
        The communicator of the optimizer that has it now.

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

    comparison: GradientComparison | None = None
    driver: Communicator | None = None

    def __init__(
        self,
        local: LocalStep,
        gradients: Transform | None = None,
        parameters: Transform | None = None,
        accumulate: int = 1,
        comparison: GradientComparison | None = None,
    ) -> None:
        if not isinstance(local, LocalStep):
            raise TypeError(
                f"local must be a local step, got a {type(local).__name__}: an optimizer's factory goes into one; give "
                "Local(functools.partial(torch.optim.SGD, lr=0.1))"
            )
        require.at_least(1, accumulate=accumulate)
        self.local = local
        self.gradients = gradients or Keep()
        self.parameters = parameters or Keep()
        self.accumulate = accumulate
        if comparison is not None:
            self.comparison = comparison
        self._learner: Local | None = None
        self._early: Callable[[Tensor, Communicator], None] | None = None
        self._layout: Layout | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self._layout is not None:
            raise TypeError(
                "a strategy that has been started must not be copied: both would step the same optimizers; make a new "
                "one, start it and load_state_dict() of this one"
            )
        return super().__deepcopy__(memo)

    def start(self, x: Tensor, layout: Layout, communicator: Communicator) -> None:
        """Allocate every memory for rows like x and refuse parts that do not fit together."""
        if x.ndim != 2 or x.shape != (len(communicator.workers), layout.d):
            needed = (len(communicator.workers), layout.d)
            raise ValueError(f"x must have shape {needed}, got {tuple(x.shape)}: give one row for each hosted worker")
        communicator.context.device, communicator.context.places = x.device, layout.places
        self.local.start(x, layout)
        self._learner = learner_of(self.local)
        if self.comparison is not None:
            self.comparison.start(x, layout)
        self.gradients.start(x.new_zeros(()).expand_as(x), layout, communicator.child("gradients"))
        self.parameters.start(x, layout, communicator.child("parameters"))
        self._early, self._in_place = overlap.early(self.parameters), overlap.in_place(self.parameters)
        self._gradients_in_place = overlap.in_place(self.gradients)
        self._layout = layout

    def state_dict(self) -> dict[str, Any]:
        """All that it remembers, in copies: tensors with a row for each hosted worker, and plain values, by name."""
        return saving.save(self, self._started_layout("state_dict"))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave. Call `start` first; a state of another method is refused."""
        saving.load(self, self._started_layout("load_state_dict"), state)

    def _started_layout(self, what: str) -> Layout:
        if self._layout is None:
            raise RuntimeError(
                f"{what} needs a strategy that has been started: call start(x, layout, communicator) first"
            )
        return self._layout

    def agrees(self, step: int | None = None) -> bool:
        """Whether all workers that take part have the same parameters after a step; without one, after some step.

        Gradients that are averaged at every step keep equal workers equal, optimizers and all.
        """
        if agrees(self.parameters, step) or not is_rowwise(self.parameters):
            return agrees(self.parameters, step)
        timetable = self.gradients.timetable()
        steps = {*range(timetable.period or timetable.sample), *timetable.changes}
        return all(agrees(self.gradients, k) for k in steps)

    @property
    def compares(self) -> bool:
        """Whether it asks for gradients of a step's batch at another point."""
        return self.comparison is not None and self.comparison.needs_oracle

    @property
    def needs_oracle(self) -> bool:
        """Whether steps ask for more of their batches than the gradients; known after `start`."""
        return self._learner is not None or self.compares

    @property
    def evaluates_elsewhere(self) -> bool:
        """Whether the result is another point than the rows, where gradients are taken."""
        return evaluates_elsewhere(self.local) or isinstance(self.parameters, EvaluatedElsewhere)

    def evaluated(self, x: Tensor, communicator: Communicator) -> Tensor:
        """The rows to evaluate, where workers hold x. Every process calls it."""
        rows = rows_to_evaluate(self.local, x)
        if isinstance(self.parameters, EvaluatedElsewhere):
            return self.parameters.evaluated(rows, communicator.child("parameters"))
        return rows

    def post(self, x: Tensor, communicator: Communicator) -> None:
        """Start what communication needs only x, before the gradient is computed. Never needed for correctness."""
        if self._early is not None and communicator.context.active is None:
            self._early(x, communicator.child("parameters"))

    def drain(self) -> None:
        """Wait for everything that still travels; what has arrived is kept until it is due."""
        for _, part in self.parts():
            overlap.drain(part)

    def step(
        self,
        x: Tensor,
        gradient: Tensor,
        communicator: Communicator,
        oracle: Gradients | None = None,
        *,
        donate: bool = False,
        moving: Tensor | None = None,
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
            Give the memory of x and of the gradient away, to work in place. Otherwise both are left alone, and a result
            is never touched again.
        moving : (w,) bool tensor, optional
            Which hosted workers take their local step, of those who have a gradient; the others communicate alone.
        """
        self._started_layout("step")
        if gradient.shape != x.shape:
            raise ValueError(
                f"gradient must have the shape of x, {tuple(x.shape)}, got {tuple(gradient.shape)}: "
                "give one row a worker"
            )
        context = communicator.context
        if context.moving is not None:
            moving = context.moving if moving is None else context.moving & moving.cpu()
        gradient = self.prepare(x, gradient, communicator, oracle, moving)
        rows = x if donate and x.is_contiguous() else x.clone(memory_format=torch.contiguous_format)
        if context.active is not None:
            return step_of_present(self, rows, gradient, communicator, moving)
        mean = self._gradients_in_place if donate else self.gradients
        averaged = mean(gradient, communicator.child("gradients"))
        moved = self.local(rows, averaged, moving)
        del gradient, averaged  # which nobody needs beside what comes
        below = communicator.child("parameters")
        # What the local step returns is ours to give away only if it is the memory that we gave it.
        in_place = moved.data_ptr() == rows.data_ptr()
        out = (self._in_place if in_place else self.parameters)(moved, below)
        if out.shape != x.shape:
            raise ValueError(
                f"a transform must keep the shape {tuple(x.shape)}, got {tuple(out.shape)}: give one row a worker"
            )
        return out

    def prepare(
        self,
        x: Tensor,
        gradient: Tensor,
        communicator: Communicator,
        oracle: Gradients | None = None,
        moving: Tensor | None = None,
    ) -> Tensor:
        """What there is to send of the gradients, (w, d). Tells the optimizer of the curvature, if it asks. `step` does
        so itself.
        """
        learner = self._learner
        if learner is not None and (asked := learner.curvature) is not None and asked.due(communicator):
            curvature = estimate(asked, learner.kind, x, communicator, oracle, shared=sends(self.gradients))
            learner.learn(curvature, moving)
        if self.comparison is None:
            return gradient
        return self.comparison(x, gradient, communicator, oracle, moving)


def with_transforms(strategy: Strategy, gradients: Transform, parameters: Transform) -> Strategy:
    """The strategy with other transforms in its slots."""
    return Strategy(strategy.local, gradients, parameters, strategy.accumulate, strategy.comparison)
