"""What a driver knows of a step's batch beside its gradient: gradients elsewhere, and the curvature of the loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from commeff.communicator import Communicator


@dataclass(frozen=True)
class Curvature:
    """What an optimizer asks of the loss: an estimate of the Hessian's diagonal, every `interval` steps.

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


class Flat(Oracle):
    """Losses without slope and curvature, for rehearsals."""

    def __call__(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def gauss_newton(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def hessian_product(self, x: Tensor, v: Tensor) -> Tensor:
        return torch.zeros_like(x)
