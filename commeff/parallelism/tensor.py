"""Tensor parallelism (arXiv 1909.08053) and sequence parallelism (arXiv 2205.05198), put on a model from outside.

Parameters become plain local tensors, so that they can lie in a worker's row; activations meet in hooks. A block costs
four all-reduces of (b, t, d), two forward and two backward, or as many pairs of a gather and a scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from commeff.parallelism.collectives import ALONG, Axis, copy_in, gather_in, scatter_out, sum_out
from commeff.parallelism.pieces import Cut, cut_evenly, whole
from commeff.parallelism.plan import (
    ColumnParallel,
    ParallelInput,
    Plan,
    RowParallel,
    SequenceParallel,
    Style,
    VocabularyParallel,
)

Collective = Callable[[Tensor], Tensor]


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
    first: int

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t) tokens -> (b, t, d)."""
        local = tokens - self.first
        mine = (local >= 0) & (local < self.weight.shape[0])
        return self.leave(F.embedding(local.where(mine, 0), self.weight) * mine[..., None])


def split(model: nn.Module, plan: Plan, axis: Axis, *, sequence: bool = False) -> dict[str, Cut]:
    """Leave this rank its piece of the model, in place. Every rank of the axis calls it on the same whole model.

    Tensors that were tied stay tied. Every parameter gets its `Cut` as the attribute `cut`.

    Parameters
    ----------
    model : nn.Module
        A whole model, equal at all ranks.
    plan : Plan
        How its modules are split. It names every module that has parameters.
    axis : Axis
        The ranks that share the model.
    sequence : bool
        Between the layers that are split each rank holds a part of the sequence, which must divide by the ranks.

    Returns
    -------
    dict of str to Cut
        Which part of each parameter of the whole model this rank holds.

    Raises
    ------
    ValueError
        Something does not divide, or the plan does not fit the model; one line for each fault.
    """
    styled = dict(_styles(model, plan))
    faults = [*_mistakes(model, plan, styled), *_faults(model, styled, axis)]
    if faults:
        raise ValueError("\n".join(faults))
    modules, cuts = dict(model.named_modules()), {}
    pieces: dict[nn.Parameter, tuple[nn.Parameter, Cut]] = {}  # tied tensors are one
    for name, style in styled.items():
        module = modules[name]
        for key, parameter in list(module.named_parameters(recurse=False)):
            if parameter not in pieces:
                cut = _cut(style, key, parameter, axis)
                piece = nn.Parameter(cut.take(parameter.detach()), requires_grad=parameter.requires_grad)
                piece.cut = cut  # type: ignore[attr-defined]
                pieces[parameter] = piece, cut
                if axis.size > 1:
                    _sum_gradients(piece, _summed_over(style, cut, axis, key, sequence))
            piece, cut = pieces[parameter]
            module.register_parameter(key, piece)
            cuts[f"{name}.{key}"] = cut
        if axis.size > 1:
            _connect(module, style, axis, sequence)
    return {name: cuts[name] for name, _ in model.named_parameters()}


def cuts_of(model: nn.Module, plan: Plan, axis: Axis) -> dict[str, Cut]:
    """What a rank of the axis would hold of a whole model, by the names of its tensors; nothing is split."""
    modules, styled = dict(model.named_modules()), dict(_styles(model, plan))
    return {
        f"{name}.{key}": _cut(style, key, parameter, axis)
        for name, style in styled.items()
        for key, parameter in modules[name].named_parameters(recurse=False)
    }


def _styles(model: nn.Module, plan: Plan) -> Iterator[tuple[str, Style]]:
    for name, _ in model.named_modules():
        for pattern, style in plan.items():
            if fnmatchcase(name, pattern):
                yield name, style


def _mistakes(model: nn.Module, plan: Plan, styled: dict[str, Style]) -> Iterator[str]:
    """Where plan and model disagree."""
    for pattern in plan:
        if not any(fnmatchcase(name, pattern) for name in styled):
            yield f"every pattern of the plan must name a module of the model, got {pattern!r}: no name matches it"
    named = {f"{name}.{key}" for name, module in model.named_modules() if name in styled for key in module._parameters}
    for name, _ in model.named_parameters(remove_duplicate=False):
        if name not in named:
            yield f"the plan must name every module that has parameters, and lacks that of {name}: give it a style"
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout) and module.p > 0:
            yield f"dropout must be 0 in a model that is split, got {module.p} in {name}: ranks would draw other masks"


def _faults(model: nn.Module, styled: dict[str, Style], axis: Axis) -> Iterator[str]:
    """What does not divide."""
    n = axis.size
    for name, module in model.named_modules():
        style = styled.get(name)
        if isinstance(style, ColumnParallel) and isinstance(module, nn.Linear):
            units = style.units or module.out_features // style.parts
            if units % n and not (style.repeat and n % units == 0):
                also = f", or {n} a multiple of them" if style.repeat else ""
                yield f"{axis.name} = {n} must divide the {units} units of {name}{also}: take another degree"
        if isinstance(style, RowParallel) and isinstance(module, nn.Linear) and module.in_features % n:
            yield f"{axis.name} = {n} must divide the {module.in_features} inputs of {name}: take another degree"
        if isinstance(style, VocabularyParallel) and (size := next(module.parameters()).shape[0]) % n:
            yield f"{axis.name} = {n} must divide the vocabulary of {name}, {size}: pad it, or take another degree"
        if isinstance(style, ColumnParallel | RowParallel) and not isinstance(module, nn.Linear):
            kind = type(style).__name__
            yield f"{kind} must name a linear layer, got {name}, {type(module).__name__}: change the plan"


def _cut(style: Style, key: str, parameter: Tensor, axis: Axis) -> Cut:
    """Which part of a module's parameter this rank holds."""
    length, n, rank = parameter.shape[0], axis.size, axis.rank
    match style:
        case ColumnParallel(units=units, repeat=True) if units is not None and units < n:
            return cut_evenly(0, length, units, rank * units // n)._replace(copies=n // units)
        case ColumnParallel(parts=parts):
            return cut_evenly(0, length, n, rank, parts)
        case VocabularyParallel():
            return cut_evenly(0, length, n, rank)
        case RowParallel() if key == "weight":
            return cut_evenly(1, parameter.shape[1], n, rank)
    return whole(0, length, n)


def _summed_over(style: Style, cut: Cut, axis: Axis, key: str, sequence: bool) -> Axis | None:
    """The ranks that each have a share of the gradient of what they all hold; None where each has all of it."""
    if isinstance(style, ColumnParallel):
        return axis.within(cut.copies) if cut.copies > 1 else None
    shares = sequence and cut.copies > 1
    return axis if shares else None


def _sum_gradients(parameter: nn.Parameter, axis: Axis | None) -> None:
    if axis is not None and parameter.requires_grad:
        parameter.register_hook(axis.reduce)


def _connect(module: nn.Module, style: Style, axis: Axis, sequence: bool) -> None:
    """Let activations meet: where work that the ranks share begins, and where it ends."""
    enter = partial(gather_in if sequence else copy_in, axis=axis)
    leave = partial(scatter_out if sequence else sum_out, axis=axis)
    if isinstance(style, ParallelInput) or (isinstance(style, VocabularyParallel) and isinstance(module, nn.Linear)):
        module.register_forward_pre_hook(lambda _, inputs: (enter(inputs[0]), *inputs[1:]))
    elif isinstance(style, RowParallel):
        module.__class__ = RowLinear
        module.leave = leave  # type: ignore[assignment]
    elif isinstance(style, VocabularyParallel):
        module.__class__ = SplitEmbedding
        module.leave = leave  # type: ignore[assignment]
        module.first = axis.rank * next(module.parameters()).shape[0]  # type: ignore[assignment]
    elif isinstance(style, SequenceParallel) and sequence and isinstance(module, nn.Embedding):
        module.register_forward_hook(partial(_own_part, axis))


def _own_part(axis: Axis, module: nn.Module, inputs: Any, out: Tensor) -> Tensor:
    return out.tensor_split(axis.size, ALONG)[axis.rank]
