"""Where the tensors of a worker lie whose model its user has split: which part of what, and who else has the same.

DTensors say which part of a whole tensor they are, plain tensors are all of theirs; the rest the ranks of a worker tell
each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Placement, Replicate, distribute_tensor, placement_types
from torch.distributed.tensor.placement_types import _StridedShard

from commeff.compressors import Layout
from commeff.sharding.foreign import Place, Workers, local
from commeff.sharding.layout import Holders, ShardedLayout
from commeff.sharding.shard import Shard, runs_of


class Placements(NamedTuple):
    """Where the tensors of a worker lie.

    Attributes
    ----------
    layout : Layout
        Of this rank's row: its shards, in its own order. Of whole tensors where a worker has one rank.
    homes : dict of str to tuple of Place
        The ranks that have the same of a tensor as this one.
    """

    layout: Layout
    homes: dict[str, tuple[Place, ...]]


def shard_of(parameter: Tensor) -> Shard:
    """Which part of a tensor this rank holds."""
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
    own = distribute_tensor(indices, parameter.device_mesh, placements, src_data_rank=None).to_local().tolist()
    return runs_of(own)


def placements_of(parameters: Mapping[str, nn.Parameter], workers: Workers) -> Placements:
    """Where the tensors of the worker lie; all its ranks call it.

    Raises
    ------
    ValueError
        Tensors of one name differ, as whole ones or where they should be copies.
    """
    mine = {name: (shard_of(parameter), _digest(local(parameter))) for name, parameter in parameters.items()}
    theirs = workers.gather([[name, shard.shape, shard.runs, digest] for name, (shard, digest) in mine.items()])
    found: dict[tuple[str, Shard], dict[Place, int]] = {}
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for place, held in theirs.items():
        for name, shape, runs, digest in held:
            shard = Shard(tuple(shape), tuple(tuple((a, b) for a, b in each) for each in runs))
            found.setdefault((name, shard), {})[place] = digest
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
        for (name, _), digests in found.items()
        if len(set(digests.values())) > 1
    ]
    if faults:
        raise ValueError("\n".join(faults))
    whole = Layout.of([(name, shape) for name, (shape,) in shapes.items()])
    homes = {name: tuple(sorted(found[name, shard])) for name, (shard, _) in mine.items()}
    if not workers.inner:
        return Placements(whole, homes)
    names = {place: {name for name, *_ in held} for place, held in theirs.items()}
    staging = [i for i in range(len(workers.inner)) if _differ(names, i)]
    shards = {}
    for name, (shard, _) in mine.items():
        stages = {tuple(home[i] for i in staging) for home in homes[name]}
        shards[name] = shard, Holders(len(homes[name]), len(stages))
    sharding = [axis for i, axis in enumerate(workers.inner) if i not in staging]
    return Placements(ShardedLayout.of_shards(whole, shards, sharding, [workers.inner[i] for i in staging]), homes)


def _differ(names: Mapping[Place, set[str]], i: int) -> bool:
    """Whether ranks that differ in coordinate i alone have tensors of other names."""
    first: dict[Place, set[str]] = {}
    return any(first.setdefault((*place[:i], *place[i + 1 :]), here) != here for place, here in names.items())


def _digest(values: Tensor) -> int:
    """A number that differs where values do, of up to a thousand of them."""
    flat = values.flatten()
    return hash(tuple(flat[:: max(1, len(flat) // 1000)].tolist()))
