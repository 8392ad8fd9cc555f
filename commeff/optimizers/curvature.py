"""What a driver knows of a step's batch beside its gradient: gradients elsewhere, and the curvature of the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from commeff.communicator import Communicator, view
from commeff.compressors import DenseMessage

Gradients = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Curvature:
    """The curvature that an optimizer asks for: an estimate of the Hessian's diagonal, every `interval` steps.

    Attributes
    ----------
    kind : {"gauss_newton", "hessian"}
        b g^2, g the gradient of a batch of b labels that the model has drawn itself; or u * (H u) for random signs u.
    interval : int
        Steps between two estimates.
    """

    kind: Literal["gauss_newton", "hessian"]
    interval: int

    def due(self, communicator: Communicator) -> bool:
        """Whether an estimate is wanted in this step."""
        return communicator.step % self.interval == 0


class Oracle(ABC):
    """The losses of the step's batches, a row a worker, at any point."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Their gradients at x, (w, d)."""

    @abstractmethod
    def gauss_newton(self, x: Tensor) -> Tensor:
        """b g^2 at x, (w, d), for b labels drawn from what the models predict: the Gauss-Newton diagonal on average."""

    @abstractmethod
    def hessian_product(self, x: Tensor, v: Tensor) -> Tensor:
        """H v at x, (w, d)."""


def require_oracle(oracle: Gradients | None, part: object) -> Gradients:
    """The oracle, which this part must have."""
    if oracle is None:
        raise ValueError(
            f"{type(part).__name__} must know gradients of the step's batch at another point, got no oracle: use "
            "commeff.train, or give step(oracle=), a function of x"
        )
    return oracle


def estimate(
    curvature: Curvature, optimizer: str, x: Tensor, communicator: Communicator, oracle: object, shared: bool
) -> Tensor:
    """The curvature at x, (w, d).

    Parameters
    ----------
    curvature : Curvature
        What is asked for.
    optimizer : str
        Who asks, in a word.
    x : (w, d)
        Where.
    communicator : Communicator
        The strategy's.
    oracle : Oracle
        The oracle of the step's batches.
    shared : bool
        Whether it is the mean of all workers' estimates that each of them gets, as where gradients travel.
    """
    if not isinstance(oracle, Oracle):
        raise ValueError(
            f"{optimizer} must know the curvature of the loss, got "
            f"{'no oracle' if oracle is None else 'an oracle of gradients alone'}: use commeff.train, or give "
            "step(oracle=), a commeff.optimizers.curvature.Oracle"
        )
    below, active = communicator.child("gradients").child("curvature"), communicator.context.active
    if curvature.kind == "gauss_newton":
        estimates = oracle.gauss_newton(x)
    else:
        signs = (below.random("signs").uniform(x.shape[1]) < 0.5).to(x).mul_(2).sub_(1)
        estimates = signs * oracle.hessian_product(x, signs)
    present = view(communicator, among=communicator.context.present).child("gradients").child("curvature")
    if shared and active is None:
        estimates = present.average(DenseMessage.of(estimates))
    elif shared and present.n:
        estimates[active] = present.average(DenseMessage.of(estimates[active]))
    return estimates


class Flat(Oracle):
    """Losses without slope and curvature, for rehearsals."""

    def __call__(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def gauss_newton(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def hessian_product(self, x: Tensor, v: Tensor) -> Tensor:
        return torch.zeros_like(x)
