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
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.tensor import DTensor

from commeff.compressors import Layout
from commeff.compressors.boxes import Span
from commeff.sharding.collectives import Axis
from commeff.sharding.deferred import Numbers, fill
from commeff.sharding.fit import sharing_faults
from commeff.sharding.foreign import resharded
from commeff.sharding.layers import Stage, stages_here
from commeff.sharding.mesh import Mesh
from commeff.sharding.precision import AS_MADE, Precision
from commeff.sharding.precision import precision as named_precision
from commeff.sharding.row import Row
from commeff.sharding.shard import Shard
from commeff.sharding.zero import part_of


class Unit(NamedTuple):
    """Parameters that are gathered together.

    Attributes
    ----------
    place : (int, int)
        The stage, and in it 0 for what lies outside of all units, which backward finishes last; the others in order.
    module : nn.Module
        Whose parameters they are; FSDP has made it one of its own.
    """

    place: tuple[int, int]
    module: nn.Module


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


def fully(model: nn.Module, mesh: Mesh, units: Sequence[str] | None = None, precision: str = "fp32") -> None:
    """Leave this rank its shard of each parameter, in place; all ranks of the worker call it, with equal models.

    Parameters
    ----------
    model : nn.Module
        This process's piece of its worker: whole, or what `split` and then a `Pipeline` have left of it.
    mesh : Mesh
        The processes.
    units : sequence of str, optional
        Patterns of the names of modules whose parameters are gathered together: the elements of every nn.Sequential and
        nn.ModuleList unless given. What no unit has is the last one.
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
    named, policy = list(_units(model, units)), MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=sums or dtype)
    homes: dict[nn.Parameter, Unit] = {}
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
            homes |= dict.fromkeys(unit.parameters(), Unit((number, i), unit))
        root.shard_axis = axis  # type: ignore[assignment]
    _tie_again(places)
    for name, parameter in model.named_parameters():
        vars(parameter).update(attributes[name])
        parameter.unit = homes[parameter]  # type: ignore[attr-defined]


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
        for group in module._get_fsdp_state()._fsdp_param_groups:
            for parameter in group.fsdp_params:
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


def _units(model: nn.Module, units: Sequence[str] | None) -> Iterator[nn.Module]:
    lists = [f"{name}." for name, module in model.named_modules() if isinstance(module, (nn.Sequential, nn.ModuleList))]
    for name, module in model.named_modules():
        if not name or not any(True for _ in module.parameters()):
            continue
        above, _, key = name.rpartition(".")
        if units is None:
            chosen = key.isdigit() and f"{above}." in lists
        else:
            chosen = any(fnmatchcase(name, pattern) and pattern.count(".") == name.count(".") for pattern in units)
        if chosen:
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
        units: list[Unit] = [parameter.unit for parameter in parameters.values()]  # type: ignore[attr-defined]
        final = [len(getattr(parameter, "homes", ())) < 2 for parameter in parameters.values()]  # no stage has a copy
        self._order = sorted(range(len(units)), key=lambda i: (final[i], units[i].place))
        self._modules = list({unit.place: unit.module for unit in units}.values())
        super().__init__(parameters, layout, axis, precision)
        if all(a == b for a, b in self.spans_of(Axis(axis.name, axis.size, axis.size - 1))):
            raise ValueError(
                f"{axis.name} = {axis.size} ranks must each have rows of some tensor for zero=3, got none at the last: "
                "take fewer ranks, or zero=2"
            )
        self._parameters_in_order, self._megabytes = list(self._named.values()), megabytes
        shards = [parameter.to_local().detach() for parameter in self._shards()]
        self._row = torch.cat([shard.flatten() for shard in shards])[None]
        self.gradient = torch.zeros_like(self._row)
        self._field_spans: dict[int, Span] = {}
        begin = 0
        for i, shard, parameter in zip(self._order, shards, self._shards(), strict=True):
            self._field_spans[i] = (begin, begin + shard.numel())
            # A storage that begins at the shard: torch.save takes a DTensor at an offset for a tensor with memory.
            storage = torch.from_dlpack(self._row[0, begin : begin + shard.numel()])
            parameter._local_tensor = storage.view(shard.shape)
            begin += shard.numel()
        _reset(cast(FSDPModule, module) for module in self._modules)

    def _shards(self) -> list[DTensor]:
        """The parameters, in the order of the row."""
        return [cast(DTensor, self._parameters_in_order[i]) for i in self._order]

    def spans_of(self, axis: Axis) -> Sequence[Span]:
        return [_rows(self._layout.fields[i].shape, self._layout.fields[i].start, axis) for i in self._order]

    @property
    def parameters(self) -> Tensor:
        return self._row

    def awaited(self, spans: Sequence[Span]) -> Sequence[Span]:
        return [(field.start, field.stop) for field in self._layout.fields] if self._megabytes else ()

    def arrived(self, start: int, stop: int) -> Sequence[Span]:
        return [self._take(i) for i, field in enumerate(self._layout.fields) if start <= field.start < stop]

    def copies(self) -> list[str]:
        return []  # what computes in few bits is FSDP's

    def finish(self) -> Tensor:
        for i in self._field_spans:
            if self._layout.fields[i].name not in self._consumed:
                self._take(i)
        self._consumed.clear()
        return self.gradient

    def passes(self, passes: int) -> int:
        return min(passes, 1)  # FSDP reduces the sum of them

    def _take(self, i: int) -> Span:
        """Move a gradient into the row."""
        parameter = self._parameters_in_order[i]
        start, stop = self._field_spans[i]
        self._consumed.add(self._layout.fields[i].name)
        if parameter.grad is None:
            self.gradient[:, start:stop].zero_()
        else:
            summed: Axis | None = getattr(parameter, "summed", None)
            local = parameter.grad.to_local().flatten()  # type: ignore[attr-defined]
            self.gradient[0, start:stop] = local if summed is None else summed.reduce(local)
            parameter.grad = None
        if self._l2:
            self.gradient[:, start:stop].add_(self._row[:, start:stop], alpha=self._l2)
        return start, stop

    def load(self, x: Tensor) -> None:
        for module in self._modules:
            cast(FSDPModule, module).reshard()
        if x.data_ptr() != self._row.data_ptr():
            self._row.copy_(x)
        for i, parameter in zip(self._order, self._shards(), strict=True):
            start, stop = self._field_spans[i]
            local = parameter.to_local().detach()
            if start < stop and local.data_ptr() != self._row[:, start:stop].data_ptr():
                local.copy_(self._row[0, start:stop].view(local.shape))  # FSDP has padded it elsewhere


def _rows(shape: Sequence[int], begin: int, axis: Axis) -> Span:
    """The columns of this rank's rows of a tensor that begins at a column; FSDP shards the first dimension."""
    width = math.prod(shape[1:])
    first, last = part_of(0, shape[0], axis)
    return begin + first * width, begin + last * width
