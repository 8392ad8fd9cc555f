"""What a torch GradScaler has done to gradients when it calls the step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer


class Looked(NamedTuple):
    """What a GradScaler leaves with an optimizer whose `_step_supports_amp_scaling` is set.

    Attributes
    ----------
    overflown : Tensor or None
        Whether gradients are not finite; None: no GradScaler calls the step.
    factor : Tensor or None
        What gradients still are times; None: they are as they are meant.
    writes : int
        How many writes into gradients torch has counted since backward.
    """

    overflown: Tensor | None
    factor: Tensor | None
    writes: int


def looked(optimizer: Optimizer, parameters: int, device: torch.device, stay: bool) -> Looked:
    """At the gradients of so many parameters, which `stay` as backward has made them until the step, or not."""
    overflown, factor = getattr(optimizer, "found_inf", None), getattr(optimizer, "grad_scale", None)
    if overflown is None:
        return Looked(None, None, 0)
    if not stay:
        raise RuntimeError(
            "a GradScaler must have gradients that stay as backward has made them until the step, got some that "
            "were sent or summed before: give it to the first step already, or bucket_mb=0; over a mesh take "
            "precision='fp16' instead"
        )
    probe = torch.zeros(1, device=device)  # how often a look counts is the device's own matter
    before = probe._version
    torch._amp_foreach_non_finite_check_and_unscale_([probe], torch.zeros_like(probe), torch.ones_like(probe))
    return Looked(overflown, factor, (probe._version - before) * parameters)
