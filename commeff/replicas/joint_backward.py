"""Several small models go backward in one call, which costs less than one call each. The definition is
`stacked.backward`; the numbers are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

TOGETHER = 2**19  # parameters of the models that go backward together: beyond, arithmetic is what costs


def group_size(d: int) -> int:
    """How many models of d parameters go backward together."""
    return max(1, TOGETHER // max(1, d))


def run(forwards: Sequence[Callable[[], Tensor]], weight: float, together: int) -> Tensor:
    """The losses of groups of `together` models, and `weight` times their gradients; gives the losses."""
    losses = []
    for first in range(0, len(forwards), together):
        values = torch.stack([forward() for forward in forwards[first : first + together]])
        values.backward(torch.full_like(values, weight))
        losses.append(values.detach())
    return losses[0] if len(losses) == 1 else torch.cat(losses)
