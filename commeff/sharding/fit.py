"""What a plan makes of each module of a model, and every way in which the two may not fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import combinations

import torch
from torch import Tensor, nn

from commeff.sharding.collectives import Axis
from commeff.sharding.layers import Layers, ranks_of, stages_here
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
from commeff.sharding.schedules import SCHEDULES, unfit
from commeff.sharding.shard import Shard, cut_evenly
from commeff.sharding.vocabulary import LossLinear

# What the styles that cut know how to compute: these layers' own forward, in what words.
KINDS: dict[type[Style], tuple[str, tuple[type[nn.Module], ...]]] = {
    ColumnParallel: ("a linear layer", (nn.Linear,)),
    RowParallel: ("a linear layer", (nn.Linear,)),
    VocabularyParallel: ("an embedding or a linear layer", (nn.Embedding, nn.Linear, LossLinear)),
}
# A schedule that divides backward cannot divide that of a function with a weight before torch 2.13.
DIVIDES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)


def styles(model: nn.Module, plan: Plan) -> dict[str, Style]:
    """The style of each module that a pattern matches, the last one where several do."""
    return {
        name: style
        for name, _ in model.named_modules()
        for pattern, style in plan.items()
        if fnmatchcase(name, pattern)
    }


def splits_outputs(model: nn.Module, plan: Plan) -> bool:
    """Whether the logits that the model gives are split by vocabulary."""
    return any(
        isinstance(style, VocabularyParallel) and isinstance(model.get_submodule(name), nn.Linear)
        for name, style in styles(model, plan).items()
    )


def cut_of(style: Style, key: str, parameter: Tensor, axis: Axis) -> Shard:
    """The part of a module's parameter that this rank holds."""
    shape, n, rank = parameter.shape, axis.size, axis.rank
    match style:
        case ColumnParallel(units=units, repeat=True) if units is not None and units < n:
            return cut_evenly(shape, 0, units, rank * units // n, copies=n // units)
        case ColumnParallel(parts=parts):
            return cut_evenly(shape, 0, n, rank, parts)
        case VocabularyParallel():
            return cut_evenly(shape, 0, n, rank)
        case RowParallel() if key == "weight":
            return cut_evenly(shape, 1, n, rank)
    return Shard.of_all(shape, n)


def check(model: nn.Module, plan: Plan, axis: Axis) -> None:
    """Refuse a plan that does not fit, with one line for each fault."""
    if any(hasattr(parameter, "cut") for parameter in model.parameters()):
        raise ValueError("the model must be whole, got one that was split before: make a new one")
    styled = styles(model, plan)
    faults = [*_mistakes(model, plan, styled), *_kinds(model, styled)]
    faults = faults or [*_places(model, styled), *_rests(model, styled, axis), *_ties(model, styled, axis)]
    if faults := [*faults, *_dropout(model)]:
        raise ValueError("\n".join(folded(faults)))


def folded(faults: Iterable[str]) -> list[str]:
    """The lines, with one for all layers of which the same is said.

    >>> folded(["blocks.0.up is odd", "head is odd", "blocks.1.up is odd", "blocks.1.norm is odd"])
    ['blocks.*.up is odd', 'head is odd', 'blocks.1.norm is odd']
    """
    kinds: dict[str, list[str]] = {}
    for fault in faults:
        kinds.setdefault(re.sub(r"[.][0-9]+[.]", ".*.", fault), []).append(fault)
    return [kind if len(alike) > 1 else alike[0] for kind, alike in kinds.items()]


def check_stages(model: nn.Module, layers: Layers, size: int, schedule: str, micro_batches: int) -> None:
    """Refuse a pipeline of `size` ranks that does not fit its model, with one line for each fault."""
    faults = [*unfit(schedule, size, micro_batches), *(_dropout(model) if size > 1 else ())]
    modules = dict(model.named_modules())
    missing = [name for name in (layers.name, *layers.first, *layers.last) if name not in modules]
    faults += [f"layers must name modules of the model, got {name!r}: no module has this name" for name in missing]
    if not missing:
        named = tuple(f"{name}." for name in (layers.name, *layers.first, *layers.last))
        faults += [
            f"layers must name every module that has parameters, and lack that of {name}: put it first or last"
            for name, _ in model.named_parameters()
            if not name.startswith(named)
        ]
        count = len(list(modules[layers.name].children()))
        stages = size * (SCHEDULES[schedule].chunks if schedule in SCHEDULES else 1)
        if count < stages:
            suffix = f" x {stages // size} stages a rank" if stages > size else ""
            faults.append(
                f"there must be as many layers as stages, pipeline = {size}{suffix}, got {count} in {layers.name}: "
                "take fewer ranks, another schedule or a deeper model"
            )
    divided = schedule in SCHEDULES and SCHEDULES[schedule].splits
    if divided and not DIVIDES and any(isinstance(module, LossLinear) for module in modules.values()):
        faults.append(
            f"schedule={schedule} needs torch 2.13 with a loss in pieces (task.loss_chunks), got {torch.__version__}: "
            "take another schedule, or loss_chunks=1"
        )
    if any(hasattr(parameter, "homes") for parameter in model.parameters()):
        faults.append("the model must be whole, got one that was dealt to stages before: make a new one")
    if faults := faults or [*_idle(model, layers, SCHEDULES[schedule].ranks(size))]:
        raise ValueError("\n".join(folded(faults)))


def _idle(model: nn.Module, layers: Layers, ranks: Sequence[int]) -> Iterator[str]:
    """The ranks that have nothing to train, in a line."""
    homes = ranks_of(model, layers, ranks)
    trained = {rank for name, p in model.named_parameters() if p.requires_grad for rank in homes.get(name, ())}
    if trained and (idle := ", ".join(map(str, sorted({*ranks} - trained)))):
        yield (
            f"each of {max(ranks) + 1} pipeline ranks must have something to train, got none at {idle}, whose layers "
            "are frozen: take fewer ranks, another schedule, or train some of them"
        )


def sharing_faults(model: nn.Module) -> Iterator[str]:
    """Why stages of this rank cannot be sharded, in a line: FSDP gathers a tensor for one of them alone."""
    for (one, first), (other, last) in combinations(stages_here(model).items(), 2):
        if not set(first.parameters()).isdisjoint(last.parameters()):
            yield (
                f"zero must be at most 2 where a tensor lies in two stages of one rank, got 3 with stages {one} and "
                f"{other}, whose embeddings are tied: untie them, take another schedule, or zero=2"
            )


def batch_faults(batch: int, shard: int, micro_batches: int) -> Iterator[str]:
    """Why a worker's batch cannot be dealt to shard ranks and cut into micro-batches, in a line."""
    if batch % (shard * micro_batches):
        yield (
            f"batch must be a multiple of shard x micro_batches = {shard} x {micro_batches}, got {batch}: every rank "
            "passes equal micro-batches on; take another batch, or other micro_batches"
        )


def _mistakes(model: nn.Module, plan: Plan, styled: dict[str, Style]) -> Iterator[str]:
    """The faults where plan and model disagree."""
    for pattern in plan:
        if not any(fnmatchcase(name, pattern) for name in styled):
            yield f"every pattern of the plan must name a module of the model, got {pattern!r}: no name matches it"
    named = {f"{name}.{key}" for name, module in model.named_modules() if name in styled for key in module._parameters}
    for name, _ in model.named_parameters(remove_duplicate=False):
        if name not in named:
            yield f"the plan must name every module that has parameters, and lacks that of {name}: give it a style"


def _dropout(model: nn.Module) -> Iterator[str]:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            yield (
                f"dropout must be 0 in a model that is split over tensor or pipeline ranks, got {module.p} in {name}: "
                "they would draw other masks; set it to 0, or split the worker over shard ranks alone"
            )


def _kinds(model: nn.Module, styled: dict[str, Style]) -> Iterator[str]:
    """Modules that are not what their style takes them for."""
    for name, style in styled.items():
        module = model.get_submodule(name)
        if type(style) in KINDS:
            words, kinds = KINDS[type(style)]
            if type(module).forward not in [kind.forward for kind in kinds]:
                kind = type(style).__name__
                yield f"{kind} must name {words}, got {name}, {type(module).__name__}: change the plan"
        if isinstance(style, VocabularyParallel) and isinstance(module, nn.Embedding):
            options = ("padding_idx", "max_norm", "scale_grad_by_freq", "sparse")
            settings = [
                f"{o}={value}" for o in options if (value := getattr(module, o)) is not None and value is not False
            ]
            if settings:
                yield f"an embedding that is split must be plain, got {name} with {', '.join(settings)}: leave that out"


def _places(model: nn.Module, styled: dict[str, Style]) -> Iterator[str]:
    """Modules that lie on the wrong side of where work begins that ranks share."""
    for name, style in styled.items():
        above = [name[:i] for i, letter in enumerate(name) if letter == "."]
        (inside, *_) = *(a for a in above if isinstance(styled.get(a), ParallelInput)), None
        kind = type(style).__name__
        if isinstance(style, (ColumnParallel, RowParallel, HeadParallel)) and inside is None:
            yield (
                f"a {kind} layer must lie in a ParallelInput module, got {name} in none: there the gradients "
                "of its input are summed; name one"
            )
        if isinstance(style, ParallelInput) and inside is not None:
            yield (
                f"a ParallelInput module must lie in no other, got {name} in {inside}: the gradients of what both get "
                "would be summed twice; name one of them"
            )
        has_parameters = any(True for _ in model.get_submodule(name).parameters(recurse=False))
        if isinstance(style, SequenceParallel) and has_parameters and inside is not None:
            yield (
                f"a SequenceParallel module must lie outside of ParallelInput modules, got {name} in {inside}, where "
                "each rank has a share of its gradient: give it HeadParallel() if it comes before the RowParallel "
                "layer, else take it out of the module"
            )


def _rests(model: nn.Module, styled: dict[str, Style], axis: Axis) -> Iterator[str]:
    """The faults where something does not divide."""
    n = axis.size
    for name, style in styled.items():
        if type(style) not in KINDS:
            continue
        weight = model.get_parameter(f"{name}.weight")
        if isinstance(style, ColumnParallel):
            outputs = weight.shape[0]
            units = style.units or outputs // style.parts
            if outputs % (units * style.parts):
                also = f"{style.parts} times " if style.parts > 1 else ""
                yield f"{also}{units} units must divide the {outputs} outputs of {name}: change the plan"
            if units % n and not (style.repeat and n % units == 0):
                also = f", or {n} a multiple of them" if style.repeat else ""
                yield f"{axis.name} = {n} must divide the {units} units of {name}{also}: take another degree"
        if isinstance(style, RowParallel) and weight.shape[1] % n:
            yield f"{axis.name} = {n} must divide the {weight.shape[1]} inputs of {name}: take another degree"
        if isinstance(style, VocabularyParallel) and weight.shape[0] % n:
            size = weight.shape[0]
            yield f"{axis.name} = {n} must divide the vocabulary of {name}, {size}: pad it, or take another degree"


def _ties(model: nn.Module, styled: dict[str, Style], axis: Axis) -> Iterator[str]:
    """Tensors that are one, of which two modules would hold different parts."""
    first: dict[nn.Parameter, tuple[str, Shard]] = {}
    for name, style in styled.items():
        for key, parameter in model.get_submodule(name).named_parameters(recurse=False):
            other, cut = first.setdefault(parameter, (name, cut_of(style, key, parameter, axis)))
            if cut != cut_of(style, key, parameter, axis):
                yield f"modules that share a tensor must be split alike, got {other} and {name}: give both one style"
