"""Models that their user has split by torch's FSDP2, tensor parallelism or pipelines: their ranks, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from commeff.communicator.wire.records import share_json
from commeff.sharding.collectives import Axis
from commeff.sharding.mesh import Mesh

T = TypeVar("T")
AnyMesh = Mesh | DeviceMesh
Place = tuple[int, ...]  # of a rank in its worker: its coordinates on the axes but the workers'

COMPILED = "_orig_mod."  # what torch.compile puts before names
COMPOSABLE = "torch.distributed._composable.replicate"  # turns a module into a DistributedDataParallel in place


class Workers:
    """The axis of a mesh that is the method's, as a process sees it, and the ranks of its own worker.

    Parameters
    ----------
    devices : DeviceMesh
        The mesh of all processes.
    axis : str
        Its axis of workers.

    Attributes
    ----------
    group : ProcessGroup
        The processes that hold the same pieces of all workers.
    inner : tuple of Axis
        The other axes, along which a worker lies on several ranks.
    place : tuple of int
        The coordinates of this process on those.

    Raises
    ------
    ValueError
        The mesh has no such axis, or not all processes.
    """

    def __init__(self, devices: DeviceMesh, axis: str) -> None:
        names = devices.mesh_dim_names or ()
        if axis not in names:
            raise ValueError(
                f"axis must name the workers' axis of the mesh, one of {', '.join(names) or '(no names)'}, got "
                f"{axis!r}: give axis=NAME"
            )
        if devices.size() != dist.get_world_size():
            raise ValueError(
                f"the mesh must have all {dist.get_world_size()} processes, got one of {devices.size()}: it says which "
                "ranks a worker has; give the mesh that it was taken from"
            )
        self.name, self.group = axis, devices.get_group(axis)
        self.inner = tuple(
            Axis(name, devices.size(i), devices.get_local_rank(name), devices.get_group(name))
            for i, name in enumerate(names)
            if name != axis and devices.size(i) > 1
        )
        self.place: Place = tuple(inner.rank for inner in self.inner)
        dim = names.index(axis)
        self._ranks = set(devices.mesh.select(dim, devices.get_local_rank(axis)).flatten().tolist())

    def gather(self, value: Any) -> dict[Place, Any]:
        """The values of all ranks of the worker, by place: numbers, text, and lists and dicts of them."""
        entries = [[[*self.place], value]]
        for axis in self.inner:
            entries = [entry for part in share_json(entries, axis.group) for entry in part]
        return {tuple(place): entry for place, entry in entries}

    def faults(self, parameters: Mapping[str, nn.Parameter]) -> Iterable[str]:
        """The parameters that do not lie on the ranks of one worker, in words."""
        for name, parameter in parameters.items():
            if isinstance(parameter, DTensor):
                ranks = parameter.device_mesh.mesh.flatten().tolist()
                if not self._ranks.issuperset(ranks):
                    yield (
                        f"the ranks of a worker, {sorted(self._ranks)}, must have {name} to themselves, got a DTensor "
                        f"over {sorted(ranks)}: axis {self.name} is the method's; give fully_shard and "
                        f"parallelize_module axes without it, as in fully_shard(model, mesh=mesh['dp_shard'])"
                    )
            elif hasattr(parameter, "cut"):
                yield f"a model that split(...) has cut needs mesh=Mesh(...), got a DeviceMesh: {name} is a piece"

    def words(self, homes: Sequence[Place]) -> str:
        """The ranks that hold a part: "everywhere", or "pp 0, tp 1"."""
        ranks = [sorted({home[i] for home in homes}) for i in range(len(self.inner))]
        if prod(map(len, ranks)) != len(homes):
            return " and ".join(map(str, homes))
        pairs = zip(self.inner, ranks, strict=True)
        parts = [f"{axis.name} {' and '.join(map(str, some))}" for axis, some in pairs if len(some) < axis.size]
        return ", ".join(parts) or "everywhere"


def workers_of(mesh: AnyMesh | None, axis: str, parameters: Mapping[str, nn.Parameter]) -> Workers | None:
    """The workers of a model that its user has split; None where it is whole, or was split by this package."""
    if isinstance(mesh, DeviceMesh):
        return Workers(mesh, axis)
    if not any(isinstance(parameter, DTensor) for parameter in parameters.values()):
        return None
    if mesh is None:
        raise ValueError(
            "mesh must be given for a model of DTensors, got none: it says which ranks a worker has; give "
            "mesh=DEVICE_MESH, axis=NAME"
        )
    return Workers(mesh.devices, "worker")


def wrapped(parts: Sequence[nn.Module]) -> Iterable[str]:
    """The modules that something else keeps equal over processes, in words."""
    for part in parts:
        for name, module in part.named_modules():
            composed = any(base.__module__ == COMPOSABLE for base in type(module).__mro__)
            if isinstance(module, FullyShardedDataParallel):
                yield (
                    f"{f'{name} of ' if name else ''}the model is wrapped in FullyShardedDataParallel (FSDP1), whose "
                    "flat shards hide which numbers a rank has; give the bare model, or shard it by fully_shard "
                    "(FSDP2) over other axes than the workers' and give mesh="
                )
            elif composed or isinstance(module, nn.parallel.DistributedDataParallel):
                yield (
                    f"{f'{name} of ' if name else ''}the model is wrapped in DistributedDataParallel, which averages "
                    "gradients beside the method; give model.module"
                )


def unfit(parameters: Mapping[str, nn.Parameter]) -> Iterable[str]:
    """The parameters that nothing can be written into, in words."""
    for name, parameter in parameters.items():
        if isinstance(parameter, nn.UninitializedParameter):
            yield f"every parameter must have a shape, got {name} of a lazy module: call the model once first"
        elif parameter.is_meta:
            yield f"every parameter must have memory, got {name} on meta: materialise the model first"
        elif not parameter.numel():
            yield f"every trainable parameter must have numbers, got none in {name}: call {name}.requires_grad_(False)"


def resharded(parts: Sequence[nn.Module]) -> None:
    """Let FSDP2 drop what it has gathered, which would hide what is written into its shards."""
    for part in parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def named(parts: Sequence[nn.Module], kind: Callable[[nn.Module], Iterable[tuple[str, T]]]) -> dict[str, T]:
    """All parameters (or buffers) of modules by name, each once; where names meet, with the module's number before."""
    first: dict[int, tuple[int, str, T]] = {}
    for i, part in enumerate(parts):
        for name, tensor in kind(part):
            first.setdefault(id(tensor), (i, name.replace(COMPILED, ""), tensor))
    unique = len({name for _, name, _ in first.values()}) == len(first)
    return {name if unique else f"{i}.{name}": tensor for i, name, tensor in first.values()}


def placed_like(other: Tensor, tensor: Tensor) -> Tensor:
    """A tensor placed as another one is, whole or in pieces; all ranks that hold it call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) and not isinstance(other, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, without a gradient, in the same memory."""
    with torch.no_grad():
        return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()
