"""A step in which a gradient may have overflowed, since it was computed in few bits."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.communicator import Communicator, observe
from commeff.core.properties import is_rowwise
from commeff.core.strategy import Strategy


def step(strategy: Strategy, x: Tensor, gradient: Tensor, communicator: Communicator, finite: Tensor | bool) -> Tensor:
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
