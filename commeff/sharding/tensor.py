"""Tensor parallelism (arXiv 1909.08053) and sequence parallelism (arXiv 2205.05198), put on a model from outside.

Parameters become plain local tensors, so that they can lie in a worker's row; activations meet where modules begin (a
hook) and in the layers and embeddings that sum (another class). A block costs
four all-reduces of (b, t, d), two forward and two backward, or as many pairs of a gather and a scatter. Those of
gradients are under way while the gradients of weights are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff.sharding.collectives import (
    ALONG,
    Axis,
    Products,
    copy_in,
    factors_of,
    gather_in,
    scatter_out,
    sum_out,
    summed_gradient,
)
from commeff.sharding.fit import check, cut_of, styles
from commeff.sharding.plan import (
    ColumnParallel,
    HeadParallel,
    ParallelInput,
    Plan,
    RowParallel,
    SequenceParallel,
    Style,
    VocabularyParallel,
)
from commeff.sharding.shard import Shard
from commeff.sharding.vocabulary import LossLinear, local

Collective = Callable[..., Tensor]


class ColumnLinear(nn.Linear):
    """A linear layer to the outputs that this rank has.

    The gradient of its weight is computed while that of what has entered the module around it is summed, if it gets
    just that: backward of anything else may come by after that sum, or never come to it.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs / ranks)."""
        if torch.compiler.is_compiling():
            return super().forward(x)
        kind, weight = x.device.type, self.weight
        factors = factors_of(weight, x)
        if factors is None or (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
            return F.linear(x, weight, self.bias)
        return Products.apply(x, weight.detach(), self.bias, factors)


class RowLinear(nn.Linear):
    """A linear layer over the inputs that this rank has: the ranks' shares are summed, then the bias is added."""

    leave: Collective

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs / ranks) -> (..., outputs)."""
        out = self.leave(F.linear(x, self.weight))
        return out if self.bias is None else out + self.bias


class SplitEmbedding(nn.Embedding):
    """The rows of this rank's tokens; those of others are zero here, and come from them."""

    leave: Collective
    axis: Axis

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t) tokens -> (b, t, d)."""
        counted, inside = local(tokens, self.weight.shape[0], self.axis)
        return self.leave(F.embedding(counted.where(inside, 0), self.weight) * inside[..., None])


def split(model: nn.Module, plan: Plan, axis: Axis, *, sequence: bool = False) -> dict[str, Shard]:
    """Leave this rank its piece of the first rank's model, in place. Every rank of the axis calls it at once.

    Tensors that were tied stay tied. Every parameter gets its `Shard` as attribute `cut`, and `ranks`: who share it.

    Parameters
    ----------
    model : nn.Module
        A whole model, of the same shapes at all ranks.
    plan : Plan
        How its modules are split. It names every module that has parameters.
    axis : Axis
        The ranks that share the model.
    sequence : bool
        Between the layers that are split each rank holds a part of the sequence, which must divide by the ranks.

    Returns
    -------
    dict of str to Shard
        Which part of each parameter of the whole model this rank holds.

    Raises
    ------
    ValueError
        Something does not divide, or the plan does not fit the model; one line for each fault.
    """
    check(model, plan, axis)
    pieces: dict[nn.Parameter, nn.Parameter] = {}  # tied tensors are one
    for name, style in styles(model, plan).items():
        module = model.get_submodule(name)
        for key, parameter in list(module.named_parameters(recurse=False)):
            if parameter not in pieces:
                axis.broadcast(parameter.detach())
                cut = cut_of(style, key, parameter, axis)
                piece = nn.Parameter(cut.take(parameter.detach()))
                piece.cut = cut  # type: ignore[attr-defined]
                piece.ranks = axis.ranks  # type: ignore[attr-defined]
                piece.sequence = sequence  # type: ignore[attr-defined]
                pieces[parameter] = piece
                parameter.now = piece  # type: ignore[attr-defined]
                summed = _summed_over(style, cut, axis, sequence)
                if summed is not None:
                    piece.summed = summed  # type: ignore[attr-defined]  # for stage 3 of ZeRO, which has no such hooks
                    piece.register_hook(partial(summed_gradient, summed))
                piece.requires_grad_(parameter.requires_grad)  # after the hook, which waits for it to be thawed
            module.register_parameter(key, pieces[parameter])
        if axis.size > 1:
            _connect(module, style, axis, sequence)
    return {name: parameter.cut for name, parameter in model.named_parameters()}  # type: ignore[attr-defined]


def _summed_over(style: Style, cut: Shard, axis: Axis, sequence: bool) -> Axis | None:
    """The ranks that each have a share of the gradient of what they all hold; None where each has all of it."""
    if cut.copies == 1:
        return None
    if isinstance(style, ColumnParallel):
        first = axis.rank - axis.rank % cut.copies
        return axis.among(range(first, first + cut.copies))
    return axis if sequence or isinstance(style, HeadParallel) else None


def _connect(module: nn.Module, style: Style, axis: Axis, sequence: bool) -> None:
    """Let activations meet: where work that the ranks share begins, and where it ends."""
    enter = partial(gather_in if sequence else copy_in, axis=axis)
    leave = partial(scatter_out if sequence else sum_out, axis=axis)
    if isinstance(style, ParallelInput) or (isinstance(style, VocabularyParallel) and isinstance(module, nn.Linear)):
        module.register_forward_pre_hook(partial(_enter, enter))
    if isinstance(style, ColumnParallel | VocabularyParallel) and type(module) is nn.Linear:
        module.__class__ = ColumnLinear
    elif isinstance(module, LossLinear):
        module.axis = axis
    elif isinstance(style, RowParallel):
        module.__class__ = RowLinear
        module.leave = leave  # type: ignore[assignment]
    elif isinstance(style, VocabularyParallel) and isinstance(module, nn.Embedding):
        module.__class__ = SplitEmbedding
        module.leave = leave  # type: ignore[assignment]
        module.axis = axis  # type: ignore[assignment]
    elif isinstance(style, SequenceParallel) and sequence and isinstance(module, nn.Embedding):
        module.register_forward_hook(partial(_own_part, axis))


def _enter(enter: Collective, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first input enters shared work; others, such as masks, are as they are."""
    if not inputs:
        raise ValueError("a ParallelInput module must get its input by position, got none: call it as module(x, ...)")
    if any(isinstance(other, Tensor) and other.requires_grad for other in inputs[1:]):
        raise ValueError(
            "a ParallelInput module must get one input that has a gradient, the first, got others: each rank would "
            "have a share of their gradients; add them to it, or compute them inside"
        )
    if torch.compiler.is_compiling():
        return enter(inputs[0]), *inputs[1:]
    x, weights = inputs[0], dict[Tensor, None]()  # tied ones once
    if x.requires_grad:
        columns = (each for each in module.modules() if isinstance(each, ColumnLinear))
        weights = {each.weight: None for each in columns if each.weight.requires_grad}
    return enter(x, weights=weights), *inputs[1:]


def _own_part(axis: Axis, module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
    return axis.part(out, ALONG)
