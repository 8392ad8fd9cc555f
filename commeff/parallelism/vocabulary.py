"""Cross-entropy of logits that are split by vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.parallelism.collectives import Axis, sum_out


def cross_entropy(logits: Tensor, targets: Tensor, axis: Axis) -> Tensor:
    """Mean of log sum_v exp(logits[v]) - logits[target], as `torch.nn.functional.cross_entropy` has it.

    The logits are never gathered: two all-reduces carry three numbers a token, the largest logit, the sum of
    exponentials and the target's logit.

    Parameters
    ----------
    logits : (..., vocabulary / ranks)
        Of this rank's part of the vocabulary.
    targets : (...)
        Tokens of the whole vocabulary, at every rank.
    axis : Axis
        The ranks that share the vocabulary.

    Examples
    --------
    >>> logits, targets = torch.randn(2, 3, 8), torch.randint(8, (2, 3))
    >>> ours = cross_entropy(logits, targets, Axis("tensor"))
    >>> bool(torch.isclose(ours, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())))
    True
    """
    logits, own = logits.flatten(0, -2), logits.shape[-1]
    local = targets.flatten() - axis.rank * own
    mine = (local >= 0) & (local < own)
    largest = axis.reduce(logits.detach().amax(-1), "max")
    shifted = logits - largest[:, None]
    target = shifted.gather(-1, local.clamp(0, own - 1)[:, None]).squeeze(-1) * mine
    exponentials, target = sum_out(torch.stack((shifted.exp().sum(-1), target)), axis)
    return (exponentials.log() - target).mean()
