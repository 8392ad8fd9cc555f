"""Cross-entropy and the guessed token of logits that are split by vocabulary, or computed in pieces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff.compressors.reductions import wide
from commeff.sharding.collectives import Axis, sum_out

IGNORED = -100  # the target of positions that do not count, unless another is given


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


def cross_entropy(logits: Tensor, targets: Tensor, axis: Axis, *, ignore_index: int = IGNORED) -> Tensor:
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
    _, logarithms, target = _terms(logits.flatten(0, -2), targets.flatten(), axis)
    return (logarithms - target).view(targets.shape)


def _terms(logits: Tensor, targets: Tensor, axis: Axis, given: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """The largest of each token's logits, and without it log sum_v exp(logits[v]) and logits[target].

    given : the memory of the logits is.
    """
    logits, places, inside = logits.to(wide(logits.dtype)), *_places(logits, targets, axis)
    largest = axis.reduce(logits.detach().amax(-1), "max")
    shifted = logits.sub_(largest[:, None]) if given else logits - largest[:, None]
    # Indexed, which unlike gather keeps nothing as large as the logits for backward.
    target = shifted[places] * inside
    exponentials, target = sum_out(torch.stack((shifted.exp_().sum(-1), target)), axis)
    return largest, exponentials.log(), target


def _places(logits: Tensor, targets: Tensor, axis: Axis) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Where each token's target lies in the logits of this rank, and whether it does."""
    width = logits.shape[-1]
    counted, inside = local(targets, width, axis)
    return (torch.arange(len(logits), device=logits.device), counted.clamp(0, width - 1)), inside


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


class _Losses(torch.autograd.Function):
    """Losses of tokens, of which one chunk after the other has logits; backward computes these anew."""

    @staticmethod
    def forward(
        ctx: Any, targets: Tensor, axis: Axis, chunks: int, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        dtype = F.linear(x[:1], weight[:1]).dtype  # under autocast it is not theirs
        x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        parts = zip(x.chunk(chunks), targets.chunk(chunks), strict=True)
        terms = [_terms(F.linear(part, weight, bias), aims, axis, given=True) for part, aims in parts]
        largest, logarithms, target = map(torch.cat, zip(*terms, strict=True))
        ctx.save_for_backward(x, targets, largest + logarithms, weight, bias)
        ctx.axis, ctx.chunks = axis, chunks
        return logarithms - target

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # else its part of one would be left out
            raise ValueError("losses in chunks have no second derivative: give loss_chunks=1")
        *of_tokens, weight, bias = ctx.saved_tensors
        of_x, of_weight = list[Tensor](), torch.zeros_like(weight, dtype=of_tokens[-1].dtype)
        of_bias = torch.zeros_like(of_weight[:, 0])
        parts = zip(*(tensor.chunk(ctx.chunks) for tensor in (*of_tokens, *gradients)), strict=True)
        for x, targets, logarithms, gradient in parts:
            slopes = F.linear(x, weight, bias).to(logarithms.dtype).sub_(logarithms[:, None]).exp_()
            places, inside = _places(slopes, targets, ctx.axis)
            slopes[places] -= inside.to(slopes.dtype)
            slopes = slopes.mul_(gradient[:, None]).to(weight.dtype)
            of_x.append(slopes @ weight)
            if x.dtype == of_weight.dtype:
                of_weight.addmm_(slopes.mT, x)
            else:  # products in 16 bits, whose sum is wider
                of_weight += slopes.mT @ x
            of_bias += 0 if bias is None else slopes.sum(0, dtype=of_bias.dtype)
            del slopes  # else they would be there beside the next
        return None, None, None, torch.cat(of_x), of_weight, None if bias is None else of_bias


class LossLinear(nn.Linear):
    """A linear layer to logits that gives losses where it gets targets, and then has some tokens' logits at a time.

    No more than 1/chunks of the logits, or of their gradient, are in memory at once; backward computes them anew.

    Attributes
    ----------
    chunks : int
        How many parts the tokens are cut into.
    axis : Axis
        The ranks that share the vocabulary.

    Examples
    --------
    >>> head, x, targets = nn.Linear(4, 9), torch.randn(2, 3, 4), torch.randint(9, (2, 3))
    >>> whole = F.cross_entropy(head(x).flatten(0, 1), targets.flatten())
    >>> LossLinear.put(head, chunks=3)
    >>> bool(torch.isclose(head(x, targets).mean(), whole))
    True
    """

    chunks: int
    axis: Axis

    @staticmethod
    def put(head: nn.Linear, chunks: int) -> None:
        """Make a layer one of these, in place, before its model is split."""
        head.__class__ = LossLinear
        head.chunks, head.axis = chunks, Axis("tensor")  # type: ignore[assignment]

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """(..., inputs) -> logits (..., outputs / ranks), or with targets (...) each token's loss (..., 1).

        In evaluation (..., 2): also whether it is guessed. Where the target is -100, zeros.
        """
        if targets is None:
            return super().forward(x)
        counts, scores = targets.flatten() != IGNORED, list[Tensor]()
        rows, aims = x.flatten(0, -2), targets.flatten().where(counts, 0)
        if self.training:
            losses = _Losses.apply(aims, self.axis, self.chunks, rows, self.weight, self.bias)
            return losses.where(counts, 0).view(*targets.shape, 1)
        for part, aim in zip(rows.chunk(self.chunks), aims.chunk(self.chunks), strict=True):
            logits = super().forward(part)
            scores.append(torch.stack((token_losses(logits, aim, self.axis), guesses(logits, self.axis) == aim), -1))
        return torch.cat(scores).where(counts[:, None], 0).view(*targets.shape, 2)
