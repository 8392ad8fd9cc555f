"""Cross-entropy and the guessed token of logits that are split by vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.compressors.reductions import wide
from commeff.sharding.collectives import Axis, sum_out


def local(tokens: Tensor, width: int, axis: Axis) -> tuple[Tensor, Tensor]:
    """Tokens counted from the first of this rank's `width`, and which of them it has.

    On the CPU a token that no rank has is refused; elsewhere looking would wait for the device.
    """
    if tokens.device.type == "cpu" and tokens.numel() and not torch.compiler.is_compiling():
        least, most = (int(extreme) for extreme in tokens.aminmax())
        if least < 0 or most >= width * axis.size:
            raise IndexError(
                f"tokens must be in 0 ... {width * axis.size - 1}, got {least if least < 0 else most}: the vocabulary "
                "has no others; give targets to leave out the value of ignore_index, or take a larger vocabulary"
            )
    counted = tokens - axis.rank * width
    return counted, (counted >= 0) & (counted < width)


def cross_entropy(logits: Tensor, targets: Tensor, axis: Axis, *, ignore_index: int = -100) -> Tensor:
    """Mean of log sum_v exp(logits[v]) - logits[target], as `torch.nn.functional.cross_entropy` has it.

    The logits are never gathered: two all-reduces carry three numbers a token, the largest logit, the sum of
    exponentials and the target's logit. Logits in 16 bits are widened first.

    Parameters
    ----------
    logits : (..., vocabulary / ranks)
        The logits of this rank's part of the vocabulary.
    targets : (...)
        Tokens of the whole vocabulary, at every rank.
    axis : Axis
        The ranks that share the vocabulary.
    ignore_index : int
        A target of positions that do not count; where no others are left, the mean is nan.

    Examples
    --------
    >>> logits, targets = torch.randn(2, 3, 8), torch.randint(8, (2, 3))
    >>> ours = cross_entropy(logits, targets, Axis("tensor"))
    >>> bool(torch.isclose(ours, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())))
    True
    """
    counts = targets != ignore_index
    losses = token_losses(logits, targets.where(counts, 0), axis)
    return losses.where(counts, 0).sum() / counts.sum()


def token_losses(logits: Tensor, targets: Tensor, axis: Axis) -> Tensor:
    """The loss of each token, (...), of which `cross_entropy` is the mean; it takes the same arguments."""
    logits, width = logits.flatten(0, -2).to(wide(logits.dtype)), logits.shape[-1]
    counted, inside = local(targets.flatten(), width, axis)
    largest = axis.reduce(logits.detach().amax(-1), "max")
    shifted = logits - largest[:, None]
    # Indexed, which unlike gather keeps nothing as large as the logits for backward.
    target = shifted[torch.arange(len(shifted), device=shifted.device), counted.clamp(0, width - 1)] * inside
    exponentials, target = sum_out(torch.stack((shifted.exp().sum(-1), target)), axis)
    return (exponentials.log() - target).view(targets.shape)


def guesses(logits: Tensor, axis: Axis) -> Tensor:
    """The token with the largest logit, (...), or the first of several, as `argmax` of whole logits gives it.

    A rank has (..., vocabulary / ranks) of them. It sends two numbers a token to the others: its largest logit, and
    the token that has it.

    Examples
    --------
    >>> guesses(torch.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 0.0]]), Axis("tensor"))
    tensor([1, 0])
    """
    largest, token = logits.max(-1)
    found = axis.gather(torch.stack((largest.double(), (token + axis.rank * logits.shape[-1]).double()))[None], 0)
    return found[:, 1].gather(0, found[:, 0].argmax(0, keepdim=True))[0].long()
