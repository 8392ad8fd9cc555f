"""Whole models in 32 bits whose forward passes run in 16 bits where torch holds that safe."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from commeff.replicas.stacked import Batch, Loss, Stacked


class MixedStacked(Stacked):
    """As `Stacked`, with forward passes under `torch.autocast`: convolutions and products in bfloat16, norms, softmax
    and losses in float32.

    Parameters, buffers, gradients and evaluations stay as the model was made, so that BatchNorm keeps its statistics in
    32 bits. A gradient is off by some times 2^-9 of its size, as bfloat16 has 8 bits (Micikevicius et al., arXiv
    1710.03740; Kalamkar et al., arXiv 1905.12322).

    Parameters
    ----------
    model, workers, seed, groups
        As in `Stacked`.

    Examples
    --------
    >>> replicas = MixedStacked(lambda: nn.Linear(2, 1), range(3))
    >>> seen = []
    >>> def loss(model, x):
    ...     seen.append(model(x).dtype)
    ...     return model(x).float().mean()
    >>> gradients, _ = replicas.compute(loss, [(torch.ones(3, 1, 2),)], step=0)
    >>> replicas.parameters.dtype, seen[0], gradients.dtype
    (torch.float32, torch.bfloat16, torch.float32)
    """

    def _check(self, model: nn.Module) -> None:
        wide = next((p.dtype for p in model.parameters() if p.dtype != torch.float32), None)
        if wide is not None:
            raise ValueError(
                f"precision=bf16_mixed needs a model of float32, got {str(wide).removeprefix('torch.')}: only that is "
                "computed in 16 bits by torch.autocast; omit precision=, or give dtype=float32"
            )

    def _backward(self, loss: Loss, batch: Batch, step: int, r: int, weight: float) -> Tensor:
        device = self.parameters.device.type
        return super()._backward(partial(_under_autocast, loss, device), batch, step, r, weight)


def _under_autocast(loss: Loss, device: str, *model_and_batch: object) -> Tensor:
    with torch.autocast(device, torch.bfloat16):
        return loss(*model_and_batch)
