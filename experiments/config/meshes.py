"""The mesh of a configuration: how many processes a run has, and what the keys around it cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from commeff.experiments.config.schema import meshed, over_mesh

AXES = ("worker", "pipeline", "shard", "tensor")


def degrees(config: Mapping[str, Any]) -> dict[str, int]:
    """The degree of each axis; an old configuration has none.

    >>> degrees({"mesh": {"tensor": 2}})
    {'worker': 1, 'pipeline': 1, 'shard': 1, 'tensor': 2}
    """
    return {axis: config.get("mesh", {}).get(axis, 1) for axis in AXES}


def mesh_size(config: Mapping[str, Any]) -> int:
    """The processes of the mesh; 1 where each worker is whole, in one process or another.

    >>> mesh_size({"mesh": {"worker": 2, "tensor": 2}}), mesh_size({"nproc": 4})
    (4, 1)
    """
    return prod(degrees(config).values())


def with_mesh(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted keys, with the workers and the processes that follow from those of the mesh.

    >>> with_mesh({"mesh.worker": 2, "mesh.tensor": 4, "seed": 1})
    {'workers': 2, 'nproc': 8, 'mesh.worker': 2, 'mesh.tensor': 4, 'seed': 1}
    """
    size = prod(values.get(f"mesh.{axis}", 1) for axis in AXES)
    follows = {} if size == 1 else {"workers": values.get("mesh.worker", 1), "nproc": size}
    return follows | dict(values)


def mesh_faults(config: Mapping[str, Any]) -> list[str]:
    """A line for everything that does not fit the mesh, and for what needs one."""
    return [*(_beside(config) if over_mesh(config) else _whole(config)), *_stages(config)]


def _whole(config: Mapping[str, Any]) -> Iterator[str]:
    """Faults of workers that are whole in one process; a mesh, if any, says where they would be cut."""
    has_mesh = meshed(config)
    where = "on one process" if has_mesh else "without a mesh"
    if has_mesh and config["workers"] != config["mesh"]["worker"]:
        yield _as_many(config)
    if config["micro_batches"] > 1:
        yield (
            f"micro_batches must be 1 {where}, got {config['micro_batches']}: nothing passes them on; set "
            "mesh.pipeline=2 or so, or method=... with several minibatches a step"
        )
    if config["recompute"] != "none":
        yield (
            f"recompute must be none {where}, got {config['recompute']}: whole models keep their activations; "
            + ("omit recompute=, or nproc=" if has_mesh else "set mesh.worker=2 or so")
        )
    if config["sequence"] and has_mesh:
        yield f"sequence must be false {where}, got true: nobody shares it; omit sequence=, or nproc="
    if config["pieces"] is not None and config["zero"] == 3 and has_mesh:
        yield f"zero must be at most 2 {where} with pieces=own, got 3: its pieces are known on processes; omit nproc="
    if config["pieces"] is not None and not has_mesh:
        yield f"pieces must be null without a mesh, got {config['pieces']}: every model is whole; omit pieces="
    if config.get("compile") == "all" and config["engine"] != "loop":
        yield f"engine must be loop with compile=all, got {config['engine']}: it is one graph already; omit engine="
    if config["precision"] != "fp32" and config["engine"] != "loop":
        engine, precision = config["engine"], config["precision"]
        yield f"engine must be loop in 16 bits, got {engine} with precision={precision}; omit engine="


def _beside(config: Mapping[str, Any]) -> Iterator[str]:
    by_axis, size = degrees(config), mesh_size(config)
    if config["precision"] == "bf16_mixed":
        yield "precision must not be bf16_mixed on a mesh: it is of whole models; give bf16"
    if config["workers"] != by_axis["worker"]:
        yield _as_many(config)
    if config["nproc"] != size:
        product = " x ".join(str(degree) for degree in by_axis.values() if degree > 1)
        yield (
            f"nproc must be {size}, got {config['nproc']}: the mesh has {product} processes; omit nproc=, or set "
            "nproc=1 for whole workers in one process"
        )
    if config["engine"] != "loop":
        yield f"engine must be loop on a mesh, got {config['engine']}: a process holds a piece of one; omit engine="


def _as_many(config: Mapping[str, Any]) -> str:
    degree, workers = config["mesh"]["worker"], config["workers"]
    return (
        f"workers must be mesh.worker={degree}, got {workers}: each process holds a piece of one; omit workers=, or "
        f"set mesh.worker={workers}"
    )


def _stages(config: Mapping[str, Any]) -> Iterator[str]:
    by_axis = degrees(config)
    if config["zero"] and by_axis["shard"] == 1:
        yield (
            f"zero must be 0 with mesh.shard=1, got {config['zero']}: there is nobody to share states with; set "
            "mesh.shard=2 or more"
        )
    if config["precision"] == "bf16_reduce_fp32" and not (over_mesh(config) and by_axis["shard"] > 1):
        yield (
            "precision must be bf16 where a worker has one shard rank, got bf16_reduce_fp32: there are no others to "
            "sum gradients with; give precision=bf16, or set mesh.shard=2 or more"
        )
    if config.get("compile") == "all":
        yield from _compiled(config)
    if config["mesh"]["schedule"] != "1f1b" and by_axis["pipeline"] == 1:
        yield (
            f"schedule must be left alone with mesh.pipeline=1, got {config['mesh']['schedule']}: there are no stages; "
            "set mesh.pipeline=2 or more"
        )
    if config["recompute"] == "partitioned" and (by_axis["tensor"] == 1 or config["sequence"]):
        yield (
            f"recompute=partitioned must have mesh.tensor=2 or more and sequence=false, got mesh.tensor="
            f"{by_axis['tensor']}, sequence={str(config['sequence']).lower()}: tensor ranks divide what all of them "
            "have; give recompute=full"
        )
    if config["sequence"] and by_axis["tensor"] == 1:
        yield "sequence must be false with mesh.tensor=1, got true: nothing is split; set mesh.tensor=2 or more"


def _compiled(config: Mapping[str, Any]) -> Iterator[str]:
    schedule, recompute = config["mesh"]["schedule"], config["recompute"]
    if over_mesh(config) and schedule in ("zero_bubble", "zbv"):
        yield (
            f"schedule must not divide backward with compile=all, got {schedule}: a compiled stage would do all of it "
            "twice; give schedule=1f1b, gpipe or interleaved, or compile=on"
        )
    if recompute == "offloaded" or (recompute != "none" and config["mesh"]["tensor"] > 1):
        yield (
            f"recompute must be none with compile=all, got {recompute}: torch.compile would compute anew, and tensor "
            "ranks send, other activations, and keep none on the host; omit recompute=, or give compile=on"
        )


def place(config: Mapping[str, Any], rank: int) -> str:
    """Where a process is in the mesh, in words; "" without one.

    >>> place({"mesh": {"worker": 2, "tensor": 2}}, 3), place({"nproc": 4}, 3)
    ('worker 1, tensor 1', '')
    """
    words = []
    for axis, degree in reversed(degrees(config).items()):
        rank, coordinate = divmod(rank, degree)
        words += [f"{axis} {coordinate}"] if degree > 1 else []
    return ", ".join(reversed(words))
