"""Models that their user has split: where their tensors lie, and a row of parameters that are not all ours to move.

DTensors say which part of a whole tensor they are, plain tensors are all of theirs; the rest the ranks of a worker tell
each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Placement, Replicate, distribute_tensor, placement_types
from torch.distributed.tensor.placement_types import _StridedShard

from commeff.boxes import Span
from commeff.compressors import Layout
from commeff.sharding.collectives import Axis
from commeff.sharding.foreign import Place, Workers, local, resharded
from commeff.sharding.layout import ShardedLayout
from commeff.sharding.parts import parts_of
from commeff.sharding.row import Row
from commeff.sharding.rows import LocalPart
from commeff.sharding.shard import Shard, runs_of


def shard_of(parameter: Tensor) -> Shard:
    """The part of a tensor that this rank holds."""
    shape = tuple(parameter.shape)
    if not isinstance(parameter, DTensor):
        return Shard.of_all(shape)
    return Shard(shape, tuple(tuple(_held(parameter, dim)) for dim in range(len(shape))))


def _held(parameter: DTensor, dim: int) -> Iterable[tuple[int, int]]:
    """The runs of indices of one dimension that this rank has: what it would get of their numbers."""
    placements: list[Placement] = []
    for placement in parameter.placements:
        if isinstance(placement, _StridedShard) and placement.dim == dim:  # FSDP after tensor parallelism
            placements.append(_StridedShard(0, split_factor=placement.split_factor))
        else:
            placements.append(placement_types.Shard(0) if placement.is_shard(dim) else Replicate())
    indices = torch.arange(parameter.shape[dim], device=parameter.device_mesh.device_type)
    piece = distribute_tensor(indices, parameter.device_mesh, placements, src_data_rank=None).to_local().tolist()
    return runs_of(piece)


def placements_of(
    parameters: Mapping[str, nn.Parameter], workers: Workers
) -> tuple[Layout, dict[str, tuple[Place, ...]]]:
    """The layout of this rank's row, of whole tensors where a worker has one rank, and the ranks that have the same of
    a tensor as this one. All ranks of the worker call it.

    Raises
    ------
    ValueError
        Tensors of one name differ, as whole ones or where they should be copies.
    """
    pieces = {name: (shard_of(parameter), _digest(local(parameter))) for name, parameter in parameters.items()}
    reports = workers.gather([[name, shard.shape, shard.runs, digest] for name, (shard, digest) in pieces.items()])
    copies: dict[tuple[str, Shard], dict[Place, int]] = {}
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for place, held in reports.items():
        for name, shape, runs, digest in held:
            shard = Shard(tuple(shape), tuple(tuple((a, b) for a, b in pairs) for pairs in runs))
            copies.setdefault((name, shard), {})[place] = digest
            shapes.setdefault(name, set()).add(shard.shape)
    faults = [
        f"a name must name one tensor, got {name} of shapes {' and '.join(map(str, sorted(several)))}: give the "
        "modules of each stage the names that they have in the whole model"
        for name, several in shapes.items()
        if len(several) > 1
    ]
    faults += [
        f"copies of {name} must be equal, got other values at {workers.words(list(digests)[:1])} than elsewhere "
        f"of {workers.words(list(digests))}: seed all ranks alike, or, where these are other tensors, give the modules "
        "of each stage the names that they have in the whole model"
        for (name, _), digests in copies.items()
        if len(set(digests.values())) > 1
    ]
    if faults:
        raise ValueError("\n".join(faults))
    whole = Layout.of([(name, shape) for name, (shape,) in shapes.items()])
    homes = {name: tuple(sorted(copies[name, shard])) for name, (shard, _) in pieces.items()}
    if not workers.inner:
        return whole, homes
    names = {place: {name for name, *_ in held} for place, held in reports.items()}
    staging = [i for i in range(len(workers.inner)) if _differ(names, i)]
    stages = {name: {tuple(home[i] for i in staging) for home in homes[name]} for name in pieces}
    shards = {name: shard._replace(copies=len(homes[name]) // len(stages[name])) for name, (shard, _) in pieces.items()}
    sharding = [axis for i, axis in enumerate(workers.inner) if i not in staging]
    return ShardedLayout.of_shards(shards, sharding, [workers.inner[i] for i in staging], stages, whole), homes


def _differ(names: Mapping[Place, set[str]], i: int) -> bool:
    """Whether ranks that differ in coordinate i alone have tensors of other names."""
    first: dict[Place, set[str]] = {}
    return any(first.setdefault((*place[:i], *place[i + 1 :]), held) != held for place, held in names.items())


def _digest(values: Tensor) -> int:
    """A number that differs where values do, of up to a thousand of them."""
    flat = values.flatten()
    return hash(tuple(flat[:: max(1, len(flat) // 1000)].tolist()))


class BorrowedRow(Row):
    """The parts that a rank holds of all parameters, one after the other, in the widest of their dtypes.

    Plain parameters of that dtype become views of the row. All others are copied: into it at the beginning, and out of
    it after each step, which is a second copy of what they are here and takes as long as reading it once. Gradients are
    copied into a row of their own at the step, until when they are the user's to clip or to change.

    Parameters
    ----------
    parameters : dict of str to nn.Parameter
        What the rank computes with.
    parts : sequence of nn.Module
        Whose parameters they are.
    workers : Workers
        The ranks.

    Attributes
    ----------
    sharding : Layout
        The shards of this rank's row; whole tensors where a worker has one rank.
    homes : dict of str to tuple of Place
        The ranks that have the same of a tensor as this one.
    copied : int
        Bytes of the parameters that have memory of their own beside the row.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], parts: Sequence[nn.Module], workers: Workers) -> None:
        devices = {parameter.device for parameter in parameters.values()}
        if len(devices) != 1:
            raise ValueError(
                "trainable parameters must be on one device, and be at least one, got "
                f"{len(devices)} devices {sorted(map(str, devices))}: they lie in one tensor"
            )
        self._parts, self._workers = parts, workers
        self.sharding, self.homes = placements_of(parameters, workers)
        self._named, self._axis = dict(parameters), Axis("shard")
        self._layout = Layout.of([(name, tuple(local(p).shape)) for name, p in parameters.items()])
        self.spans = self.spans_of(self._axis)
        dtype = reduce(torch.promote_types, (parameter.dtype for parameter in parameters.values()))
        self._row = torch.empty(1, self._layout.d, dtype=dtype, device=devices.pop())
        self.gradient = torch.zeros_like(self._row)
        self._copied: list[tuple[Tensor, Tensor]] = []
        for parameter, place in self._places(self._row):
            place.copy_(local(parameter))
            if isinstance(parameter, DTensor) or parameter.dtype != dtype:
                self._copied.append((parameter, place))
            else:
                parameter.data = place
        self.copied = sum(local(parameter).nbytes for parameter, _ in self._copied)
        self._compared, self._consumed = False, set[str]()

    @property
    def parameters(self) -> Tensor:
        return self._row

    def spans_of(self, axis: Axis) -> Sequence[Span]:
        return [(0, self._layout.d)]

    def awaited(self, spans: Sequence[Span]) -> Sequence[Span]:
        return ()  # until the step they are the user's

    def arrived(self, start: int, stop: int) -> Sequence[Span]:
        return ()

    def copies(self) -> list[str]:
        copied = {id(parameter) for parameter, _ in self._copied}
        return [name for name, parameter in self._named.items() if id(parameter) in copied]

    def finish(self) -> Tensor:
        for parameter, place in self._places(self.gradient):
            gradient = parameter.grad
            assert gradient is not None
            if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
                gradient = gradient.redistribute(placements=parameter.placements)
            place.copy_(local(gradient))
        if not self._compared:
            gradients = {field.name: self.gradient[0, field.start : field.stop] for field in self._layout.fields}
            _compare_copies(gradients, self.homes, self._workers)
            self._compared = True
        return self.gradient

    def load(self, x: Tensor) -> None:
        if x.data_ptr() != self._row.data_ptr():
            self._row.copy_(x)
        resharded(self._parts)
        for parameter, place in self._copied:
            local(parameter).copy_(place)

    def _places(self, row: Tensor) -> Iterable[tuple[nn.Parameter, Tensor]]:
        for parameter, field in zip(self._named.values(), self._layout.fields, strict=True):
            yield parameter, row[0, field.start : field.stop].view(field.shape)


def borrowed(parameters: Mapping[str, nn.Parameter], parts: Sequence[nn.Module], workers: Workers) -> LocalPart:
    """This rank's part of a model that its user has split, in a row; all ranks of the worker call it."""
    row = BorrowedRow(parameters, parts, workers)
    layout = row.sharding
    if not isinstance(layout, ShardedLayout):
        return LocalPart(row, layout)
    words = {name: workers.words(places) for name, places in row.homes.items()}
    return LocalPart(row, layout, parts_of(layout, words))


def _compare_copies(tensors: Mapping[str, Tensor], homes: Mapping[str, Sequence[Place]], workers: Workers) -> None:
    """Refuse copies whose norms differ, as of ranks that have seen other data; all ranks of a worker call it."""
    norms = {
        name: float(torch.linalg.vector_norm(tensor.double()))
        for name, tensor in tensors.items()
        if len(homes[name]) > 1
    }
    gathered: dict[Place, dict[str, float]] = workers.gather(norms)
    for name, norm in norms.items():
        for home in homes[name]:
            other = gathered[home].get(name, norm)
            if math.isfinite(norm + other) and not math.isclose(norm, other, rel_tol=1e-3):
                raise ValueError(
                    f"copies of {name} must get the same gradient, got norms {norm:.6g} here and {other:.6g} at "
                    f"{workers.words([home])}: nothing averages them over these ranks, which would drift apart; give "
                    "fully_shard that axis, or average them before the step"
                )
