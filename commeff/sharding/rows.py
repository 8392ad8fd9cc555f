"""A worker's row at each of its ranks: which columns a rank updates, and what it knows of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from commeff.compressors import Layout
from commeff.sharding.collectives import Axis
from commeff.sharding.layers import homes_of
from commeff.sharding.layout import ShardedLayout
from commeff.sharding.mesh import Mesh
from commeff.sharding.parts import Part, parts_of, ranks_in_words
from commeff.sharding.precision import AS_MADE, Precision
from commeff.sharding.row import Row
from commeff.sharding.shard import Shard
from commeff.sharding.zero import BucketedRow, SingleRow

STAGES = (0, 1, 2, 3)


class LocalPart(NamedTuple):
    """The part of its worker's model that this rank updates.

    Attributes
    ----------
    row : Row
        Its memory, and the columns of it that this rank updates.
    layout : Layout
        The layout of these columns.
    partition : tuple of Part
        These columns by the ranks that hold them; empty where they are a whole model.
    """

    row: Row
    layout: Layout
    partition: tuple[Part, ...] = ()


def build_row(
    layout: Layout,
    parameters: Mapping[str, nn.Parameter],
    mesh: Mesh | None,
    zero: int = 1,
    megabytes: float = 0.0,
    precision: Precision = AS_MADE,
) -> LocalPart:
    """Move the parameters into a row; gives the part of its worker's model that this rank updates.

    Parameters
    ----------
    layout : Layout
        The layout of the parameters that this rank computes with.
    parameters : dict of str to nn.Parameter
        Those, in its order, the same at all ranks that hold the same piece; pieces have a `cut`.
    mesh : Mesh, optional
        The ranks; None where each process is a worker.
    zero : int
        The stage of ZeRO.
    megabytes : float
        About how large a bucket of gradients is that shard ranks reduce; 0: all of them, after backward. Of stage 3,
        only whether it is 0.
    precision : Precision
        In which the model computes, and sums gradients over shard ranks; the method keeps that of its parameters.

    Raises
    ------
    ValueError
        The model is split and its mesh is not given, or the other way round; or there is no such stage.
    """
    if zero not in STAGES:
        raise ValueError(f"zero must be one of {', '.join(map(str, STAGES))}, got {zero}")
    cuts = [getattr(parameter, "cut", None) for parameter in parameters.values()]
    if precision.sums is not None and (mesh is None or mesh.degrees["shard"] == 1):
        raise ValueError(
            "precision must be bf16 where a worker has one shard rank, got bf16_reduce_fp32: there are no others to "
            "sum gradients with; give bf16, or a mesh with shard=2 or more"
        )
    if mesh is None:
        if any(cuts):
            raise ValueError(
                "mesh must be given for a model that is split, got none: it says which processes hold the same piece; "
                "give mesh=Mesh(worker=..., tensor=...)"
            )
        return LocalPart(SingleRow(parameters, layout, Axis("shard"), precision), layout)
    pipeline, shard, tensor = (mesh.axis(name) for name in ("pipeline", "shard", "tensor"))
    if tensor.size > 1 and None in cuts:
        raise ValueError(f"the model must be split over the {tensor.size} tensor ranks: call split(...) first")
    for ranks in (getattr(parameter, "ranks", None) for parameter in parameters.values()):
        if ranks is not None and ranks != tensor.ranks and max(len(ranks), tensor.size) > 1:
            raise ValueError(
                f"the model must be split over the tensor ranks of its mesh, {tensor.ranks}, got one that is split "
                f"over {ranks}: give split(...) an axis of the mesh that it is optimised with"
            )
    if zero == 3:
        from commeff.sharding.fully import FullyRow  # FSDP takes half as long to import as torch

        row: Row = FullyRow(parameters, layout, shard, precision, megabytes)
    elif shard.size > 1:
        row = BucketedRow(parameters, layout, shard, precision, megabytes, zero)
    else:
        row = SingleRow(parameters, layout, shard, precision)
    shared = shard if zero else Axis("shard")  # ranks of stage 0 hold copies, and need not tell each other
    if pipeline.size * tensor.size * shared.size == 1:
        return LocalPart(row, layout)
    homes = {name: homes_of(parameter, pipeline) for name, parameter in parameters.items()}
    sharding, staging = ([axis for axis in axes if axis.size > 1] for axes in ((shared, tensor), (pipeline,)))
    among = next((getattr(parameter, "among", None) for parameter in parameters.values()), None)
    whole = None if among is None else Layout.of(among)
    shards = {name: cut or Shard.of_all(p.shape) for (name, p), cut in zip(parameters.items(), cuts, strict=True)}
    pieces = ShardedLayout.of_shards(shards, sharding, staging, homes, whole).pick(row.spans)
    # The ends of a pipeline deal what is tied to shard ranks as the rest of their rows has it, unless each tensor is.
    tied = any(getattr(parameter, "tied", False) for parameter in parameters.values())
    alike = shared.size == 1 or zero == 3 or not tied
    return LocalPart(row, pieces, parts_of(pieces, ranks_in_words(pieces, tensor, shared, homes), alike))
