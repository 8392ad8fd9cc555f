"""ZeRO stage 3: torch's FSDP2 over a worker's shard ranks, whose shards lie in the row of the method.

FSDP gathers the parameters of a unit before it computes with them and drops them afterwards, forward and backward, and
scatters the sum of the gradients: 3 (S-1)/S Psi numbers a step. In M micro-batches it is (M + 2) (S-1)/S Psi, since
forward drops parameters after each, and backward only after the last. Where a schedule splits backward in two, they
stay gathered from the first forward on: 2 (S-1)/S Psi numbers, and a rank holds its stages' whole parameters meanwhile.
FSDP gets the shard axis alone; the workers' axis is the method's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.tensor import DTensor

from commeff.boxes import Span
from commeff.compressors import Layout
from commeff.sharding.collectives import Axis
from commeff.sharding.deferred import Numbers, fill
from commeff.sharding.fit import sharing_faults
from commeff.sharding.foreign import local, resharded
from commeff.sharding.layers import Stage, stages_here
from commeff.sharding.mesh import Mesh
from commeff.sharding.precision import AS_MADE, Precision, named_precision
from commeff.sharding.row import Row
from commeff.sharding.shard import Shard
from commeff.sharding.zero import part_of


class CountedGather(DefaultAllGather):
    """FSDP's gathers, which the axis counts."""

    def __init__(self, axis: Axis) -> None:
        self._axis = axis

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        self._axis.sent(input_tensor.nbytes * (self._axis.size - 1))
        return super().__call__(output_tensor, input_tensor, *arguments, **options)


class CountedScatter(DefaultReduceScatter):
    """FSDP's scatters of sums, which the axis counts."""

    def __init__(self, axis: Axis) -> None:
        self._axis = axis

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        self._axis.sent(output_tensor.nbytes * (self._axis.size - 1))
        return super().__call__(output_tensor, input_tensor, *arguments, **options)


def fully(model: nn.Module, mesh: Mesh, precision: str = "fp32") -> None:
    """Leave this rank its shard of each parameter, in place; all ranks of the worker call it, with equal models.

    The elements of every nn.Sequential and nn.ModuleList are units, whose parameters are gathered together. What none
    of them has is the last one.

    Parameters
    ----------
    model : nn.Module
        This process's piece of its worker: whole, or what `split` and then a `Pipeline` have left of it.
    mesh : Mesh
        The processes.
    precision : str
        In which they are gathered and computed with, and gradients summed: one of `DistributedOptimizer`'s.

    Raises
    ------
    ValueError
        There is one shard rank, or two stages of this rank share a tensor.
    """
    if mesh.degrees["shard"] == 1:
        raise ValueError("zero=3 needs shard > 1, got 1: there is nobody to share parameters with; give zero=0")
    for fault in sharing_faults(model):
        raise ValueError(fault)
    shard, axis = mesh.devices["shard"], mesh.axis("shard")
    attributes = {name: vars(parameter).copy() for name, parameter in model.named_parameters()}
    places = {(module, key): tensor for module in model.modules() for key, tensor in module._parameters.items()}
    dtype, _, sums = named_precision(precision)
    named, policy = list(units(model)), MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=sums or dtype)
    # The stage, and in it 0 for what lies outside of all units, which backward finishes last; and FSDP's module.
    unit_of: dict[nn.Parameter, tuple[tuple[int, int], nn.Module]] = {}
    for number, root in stages_here(model).items() or [(0, model)]:
        inside = set(root.modules()) - {root}
        within = [unit for unit in named if unit in inside]
        for unit in (*within, root):
            # By default the root would stay gathered after forward.
            gathered = isinstance(root, Stage) and root.gathered
            fully_shard(unit, mesh=shard, reshard_after_forward=not gathered, mp_policy=policy)
            cast(FSDPModule, unit).set_custom_all_gather(CountedGather(axis))
            cast(FSDPModule, unit).set_custom_reduce_scatter(CountedScatter(axis))
            unit.__deepcopy__ = _not_copied  # type: ignore[assignment]
        for i, unit in enumerate((root, *within)):
            unit_of |= dict.fromkeys(unit.parameters(), ((number, i), unit))
        root.shard_axis = axis  # type: ignore[assignment]
    _tie_again(places)
    for name, parameter in model.named_parameters():
        vars(parameter).update(attributes[name])
        parameter.unit = unit_of[parameter]  # type: ignore[attr-defined]


def _tie_again(places: Mapping[tuple[nn.Module, str], nn.Parameter | None]) -> None:
    """Modules that shared a tensor of which FSDP has sharded one, the other being in another stage, share it again."""
    sharded = {
        tensor: now for (module, key), tensor in places.items() if (now := module._parameters[key]) is not tensor
    }
    for (module, key), tensor in places.items():
        if module._parameters[key] is tensor and tensor in sharded:
            module._parameters[key] = sharded[tensor]
    for tensor, now in sharded.items():
        tensor.now = now  # type: ignore[union-attr]


def fill_shards(model: nn.Module, numbers: Numbers, axis: Axis) -> None:
    """`fill` for a model on the meta device that was given to `fully`: one whole tensor at a time is in memory."""
    named = dict(model.named_parameters())

    def shard(name: str, cut: Shard | None) -> Tensor | None:
        value = numbers(name, cut)
        if value is None or name not in named:
            return value
        local_shard = torch.empty_like(named[name], device=value.device)
        cast(DTensor, local_shard).to_local().copy_(value[slice(*part_of(0, len(value), axis))])
        return local_shard

    fill(model, shard)
    _reset(module for module in model.modules() if isinstance(module, FSDPModule))


def _reset(modules: Iterable[FSDPModule]) -> None:
    """Let FSDP see which tensors are its shards now."""
    for module in modules:
        group = module._get_fsdp_state()._fsdp_param_group  # None: it has no parameters of its own
        for parameter in group.fsdp_params if group else ():
            parameter.reset_sharded_param()


def _not_copied(_: Any) -> NoReturn:
    raise TypeError(
        "a model of zero=3 must not be copied, got copy.deepcopy(model): a rank holds shards of it; give average_into "
        "a new model, or a copy that was made before the optimizer"
    )


@contextmanager
def aside(module: nn.Module) -> Iterator[None]:
    """What a module computes meanwhile is no part of training: what FSDP gathers is not counted, and dropped again."""
    axis: Axis | None = getattr(module, "shard_axis", None)
    sent = 0.0 if axis is None else axis.bytes
    yield
    resharded([module])
    if axis is not None:
        axis.bytes = sent


def units(model: nn.Module) -> Iterator[nn.Module]:
    """What is gathered together: the elements of every nn.Sequential and nn.ModuleList that have parameters."""
    for name, module in model.named_modules():
        above, _, key = name.rpartition(".")
        listed = key.isdigit() and isinstance(model.get_submodule(above), (nn.Sequential, nn.ModuleList))
        if listed and any(True for _ in module.parameters()):
            yield module


class FullyRow(Row):
    """Stage 3: a rank has its shard of every parameter, and of its gradient and states, one after the other.

    The parameters that backward finishes last come first, so that the last blocks of the row can be sent while others
    are computed: those whose gradients are summed over stages, then those outside of all units.

    Parameters
    ----------
    megabytes : float
        0: gradients stay with their parameters until backward has ended, however often it comes; else they are taken
        from them, one tensor at a time.
    """

    takes = True

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        layout: Layout,
        axis: Axis,
        precision: Precision = AS_MADE,
        megabytes: float = 0.0,
    ) -> None:
        if not all(isinstance(parameter, DTensor) for parameter in parameters.values()):
            raise ValueError("the model must be sharded for zero=3, got a plain one: call fully(model, mesh) first")
        units = {name: parameter.unit for name, parameter in parameters.items()}  # type: ignore[attr-defined]
        tied = {name for name, parameter in parameters.items() if len(getattr(parameter, "homes", ())) > 1}
        self._order = sorted(layout.fields, key=lambda field: (field.name not in tied, units[field.name][0]))
        self._modules: list[nn.Module] = list(dict(units.values()).values())
        super().__init__(parameters, layout, axis, precision)
        if all(a == b for a, b in self.spans_of(Axis(axis.name, axis.size, axis.size - 1))):
            raise ValueError(
                f"{axis.name} = {axis.size} ranks must each have rows of some tensor for zero=3, got none at the last: "
                "take fewer ranks, or zero=2"
            )
        self._megabytes = megabytes
        shards = {field.name: local(self._named[field.name]) for field in self._order}
        self._row = torch.cat([shard.flatten() for shard in shards.values()])[None]
        self.gradient = torch.zeros_like(self._row)
        self._columns: dict[str, Span] = {}
        begin = 0
        for name, shard in shards.items():
            end = begin + shard.numel()
            self._columns[name] = begin, end
            # A storage that begins at the shard: torch.save takes a DTensor at an offset for a tensor with memory.
            storage = torch.from_dlpack(self._row[0, begin:end])
            cast(DTensor, self._named[name])._local_tensor = storage.view(shard.shape)
            begin = end
        _reset(cast(FSDPModule, module) for module in self._modules)

    def spans_of(self, axis: Axis) -> Sequence[Span]:
        spans = []
        for field in self._order:  # of which FSDP shards the first dimension
            width = math.prod(field.shape[1:])
            first, last = part_of(0, field.shape[0], axis)
            spans.append((field.start + first * width, field.start + last * width))
        return spans

    @property
    def parameters(self) -> Tensor:
        return self._row

    def awaited(self, spans: Sequence[Span]) -> Sequence[Span]:
        return [(field.start, field.stop) for field in self._layout.fields] if self._megabytes else ()

    def arrived(self, start: int, stop: int) -> Sequence[Span]:
        return [self._take(field.name) for field in self._layout.fields if start <= field.start < stop]

    def copies(self) -> list[str]:
        return []  # what computes in few bits is FSDP's

    def finish(self) -> Tensor:
        for name in self._columns:
            if name not in self._consumed:
                self._take(name)
        self._consumed.clear()
        return self.gradient

    def passes(self, passes: int) -> int:
        return min(passes, 1)  # FSDP reduces the sum of them

    def _take(self, name: str) -> Span:
        """Move a gradient into the row."""
        parameter, (start, stop) = self._named[name], self._columns[name]
        self._consumed.add(name)
        if parameter.grad is None:
            self.gradient[:, start:stop].zero_()
        else:
            summed: Axis | None = getattr(parameter, "summed", None)
            gradient = local(parameter.grad).flatten()
            self.gradient[0, start:stop] = gradient if summed is None else summed.reduce(gradient)
            parameter.grad = None
        if self._l2:
            self.gradient[:, start:stop].add_(self._row[:, start:stop], alpha=self._l2)
        return start, stop

    def load(self, x: Tensor) -> None:
        for module in self._modules:
            cast(FSDPModule, module).reshard()
        if x.data_ptr() != self._row.data_ptr():
            self._row.copy_(x)
        for name, (start, stop) in self._columns.items():
            shard = local(self._named[name])
            if start < stop and shard.data_ptr() != self._row[:, start:stop].data_ptr():
                shard.copy_(self._row[0, start:stop].view(shard.shape))  # FSDP has padded it elsewhere
