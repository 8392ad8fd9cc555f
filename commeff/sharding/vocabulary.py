"""Cross-entropy and the guessed token of logits that are split by vocabulary, or computed in pieces."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
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
    losses = token_losses(logits, targets.where(targets != ignore_index, 0), axis)
    return mean_loss(losses, targets, ignore_index)


def mean_loss(losses: Tensor, targets: Tensor, ignore_index: int = IGNORED) -> Tensor:
    """The mean of the losses of those tokens (...) whose targets count; nan where none do."""
    counts = targets != ignore_index
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
    """The losses of tokens, of which those of one chunk after the other have logits; backward computes them anew."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, axis: Axis, chunks: int
    ) -> Tensor:
        parts = zip(x.chunk(chunks), targets.chunk(chunks), strict=True)
        terms = [_terms(F.linear(part, weight, bias), aims, axis, given=True) for part, aims in parts]
        largest, logarithms, target = map(torch.cat, zip(*terms, strict=True))
        ctx.save_for_backward(x, weight, bias, targets, largest + logarithms)
        ctx.axis, ctx.chunks = axis, chunks
        return logarithms - target

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, *rest = ctx.saved_tensors
        of_x, of_weight, of_bias = [], torch.zeros_like(weight), None if bias is None else torch.zeros_like(bias)
        for part, targets, logarithms, gradient in zip(
            *(tensor.chunk(ctx.chunks) for tensor in (x, *rest, *gradients)), strict=True
        ):
            logits = F.linear(part, weight, bias)
            places, inside = _places(logits, targets, ctx.axis)
            slopes = logits.to(logarithms.dtype).sub_(logarithms[:, None]).exp_()
            slopes[places] -= inside.to(slopes.dtype)
            slopes = slopes.mul_(gradient[:, None]).to(weight.dtype)
            of_x.append(slopes @ weight)
            of_weight.addmm_(slopes.mT, part)
            if of_bias is not None:
                of_bias += slopes.sum(0)
        return torch.cat(of_x), of_weight, of_bias, None, None, None


class LossLinear(nn.Linear):
    """A linear layer to logits that gives losses where it gets targets, with a part of the logits at a time.

    No more than 1/chunks of the logits are there at once, or of their gradient; backward computes them anew.

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
    >>> bool(torch.isclose(mean_loss(head(x, targets)[..., 0], targets), whole))
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
        """(..., inputs) -> logits (..., outputs / ranks), or with targets (...) the loss of each token (..., 1).

        In evaluation these are (..., 2): also whether the token is guessed.
        """
        if targets is None:
            return super().forward(x)
        rows, aims = x.flatten(0, -2), targets.flatten()
        aims = aims.where(aims != IGNORED, 0)
        if self.training:
            weights, kind = (rows, self.weight, self.bias), x.device.type
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                dtype = torch.get_autocast_dtype(kind)
                weights = tuple(None if tensor is None else tensor.to(dtype) for tensor in weights)
            return _Losses.apply(*weights, aims, self.axis, self.chunks).view(*targets.shape, 1)
        parts = zip(rows.chunk(self.chunks), aims.chunk(self.chunks), strict=True)
        return torch.cat([self._scores(*part) for part in parts]).view(*targets.shape, 2)

    def _scores(self, x: Tensor, targets: Tensor) -> Tensor:
        logits = super().forward(x)
        losses = token_losses(logits, targets, self.axis)
        return torch.stack((losses, (guesses(logits, self.axis) == targets).to(losses.dtype)), -1)
