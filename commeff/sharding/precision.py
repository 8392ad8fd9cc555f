"""In how many bits a model computes. What a method sees stays as it is: its rows are the master weights.

In 16 bits, parameters and gradients are of that kind between ranks and inside the model; each rank's columns of the row
are kept in 32. Bytes of Psi parameters at S ranks, with AdamW:

    stage 0   2 + 2 + 12 = 16 Psi
    stage 1   4 Psi + 12 Psi/S
    stage 2   2 Psi + 14 Psi/S
    stage 3   16 Psi/S

Ranks that share a batch sum gradients in 16 bits, or, in "bf16_reduce_fp32", widen them before they leave: twice the
bytes, and no sum is rounded to 8 bits. Stage 2 keeps its share of them in 32 bits then: 2 Psi + 16 Psi/S.

float16 has few exponents: the loss is multiplied by a scale, which is halved when a gradient overflows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from commeff import require
from commeff.communicator import Communicator, observe
from commeff.core.properties import is_rowwise
from commeff.core.strategy import Strategy
from commeff.sharding.collectives import Axis
from commeff.sharding.computation import Batch, Objective


class Precision(NamedTuple):
    """The types in which a model computes.

    Attributes
    ----------
    dtype : torch.dtype or None
        The type of parameters, activations and gradients; None: as the model was made.
    scaled : bool
        Whether gradients need a scale, so that small ones do not vanish.
    sums : torch.dtype or None
        The type in which ranks that share a batch sum gradients; None: that of gradients.
    """

    dtype: torch.dtype | None
    scaled: bool = False
    sums: torch.dtype | None = None


AS_MADE = Precision(None)
PRECISIONS: Mapping[str, Precision] = {
    "fp32": AS_MADE,
    "bf16": Precision(torch.bfloat16),
    "fp16": Precision(torch.float16, scaled=True),
    "bf16_reduce_fp32": Precision(torch.bfloat16, sums=torch.float32),
}


def named_precision(name: str) -> Precision:
    """The precision of that name."""
    return require.choose(PRECISIONS, precision=name)


class LossScale:
    """The factor of the loss, the same at all ranks of a worker.

    It is halved after a gradient that is not finite, and doubled after `patience` that are.

    Parameters
    ----------
    axes : iterable of Axis
        Over which the worker lies.
    first : float
        The scale at first.
    patience : int
        After how many good steps it grows.

    Attributes
    ----------
    value : float
        The scale.

    Examples
    --------
    >>> scale = LossScale([], first=4.0, patience=2)
    >>> gradients = [torch.tensor([[x, 1.0]]) for x in (float("inf"), 2.0, 2.0)]
    >>> [(scale.unscale(gradient), scale.value) for gradient in gradients]
    [(False, 2.0), (True, 2.0), (True, 4.0)]
    >>> gradients[1]
    tensor([[1.0000, 0.5000]])
    """

    def __init__(self, axes: Iterable[Axis], first: float = 2.0**15, patience: int = 2000) -> None:
        self._axes, self._patience = tuple(axes), patience
        self.value, self._good = first, 0

    def unscale(self, gradient: Tensor) -> bool:
        """Divide a gradient by the scale, in place; true if those of all ranks are finite. Moves the scale."""
        bad = (~gradient.isfinite().all()).float().reshape(1)
        for axis in self._axes:
            bad = axis.reduce(bad, "max")
        finite = not bool(bad)
        gradient.div_(self.value)
        self._good = self._good + 1 if finite else 0
        if not finite:
            self.value /= 2
        elif self._good == self._patience:
            self.value, self._good = self.value * 2, 0
        return finite

    def state_dict(self) -> dict[str, Any]:
        """The scale, and for how many steps it was good."""
        return {"value": self.value, "good": self._good}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.value, self._good = state["value"], state["good"]


def step_of_finite(
    strategy: Strategy, x: Tensor, gradient: Tensor, communicator: Communicator, finite: Tensor | bool
) -> Tensor:
    """One model update, in place; a gradient that is not finite takes no part in it.

    Where gradients stay with their worker until its local step, that worker leaves out this step and goes on talking.
    Where they go elsewhere first, or into a memory, all workers vote before that, and leave out the step together.

    Parameters
    ----------
    x, gradient : (w, d)
        As `Strategy.step` gets them.
    finite : (w,) bool, or bool
        Whether the gradients of the hosted workers are.
    """
    good = torch.as_tensor(finite).expand(len(x))
    active = communicator.context.active
    if active is not None:
        good = good | ~active  # what the absent have computed nobody looks at
    if is_rowwise(strategy.gradients):
        if bool(good.all()):
            return strategy.step(x, gradient, communicator, donate=True)
        finite_rows = gradient.masked_fill(~good[:, None].to(gradient.device), 0.0)
        return strategy.step(x, finite_rows, communicator, donate=True, moving=good)
    if float(observe(communicator, (~good).double())) > 0:
        strategy.drain()
        return x
    return strategy.step(x, gradient, communicator, donate=True)


def lower_frozen(modules: Sequence[nn.Module], dtype: torch.dtype | None) -> None:
    """Let parameters that no row has compute in a dtype, too. Those that FSDP shards it gathers in that dtype."""
    for module in modules:
        for parameter in module.parameters():
            whole = not is_traceable_wrapper_subclass(parameter)
            if dtype is not None and whole and not parameter.requires_grad and parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)


def lowered(tensors: Batch, dtype: torch.dtype | None) -> Batch:
    """Inputs in a dtype; what counts, such as tokens, stays as it is."""
    if dtype is None:
        return tensors
    return tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors)


def raised(objective: Objective, dtype: torch.dtype | None) -> Objective:
    """The objective of a model that computes in a dtype: its loss is taken in 32 bits."""
    if dtype is None:
        return objective

    def inputs_targets(*batch: Tensor) -> tuple[Batch, Any]:
        inputs, targets = objective.inputs_targets(*batch)
        return lowered(inputs, dtype), targets

    return Objective(inputs_targets, lambda outputs, targets: objective.criterion(outputs.float(), targets))
