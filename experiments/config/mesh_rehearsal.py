"""A task, its model and a method on a mesh, played before anything is made: what does not fit, all of it at once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

from commeff.compressors import Layout
from commeff.core.strategy import Strategy
from commeff.experiments.config.contained import refused
from commeff.experiments.config.meshes import AXES, degrees
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.tasks.shapes import shapes_only
from commeff.replicas import ShardedWorker
from commeff.replicas.sharded import all_used
from commeff.sharding import Axis
from commeff.sharding.fit import batch_faults, check, check_stages, folded, sharing_faults
from commeff.sharding.layers import stages_here
from commeff.sharding.parts import Part, joined
from commeff.sharding.pieces import fitted
from commeff.sharding.played import PlayedMesh
from commeff.training.sharding import on_mesh
from commeff.training.task import SplitTask, StagedTask, Task, objective


def fit_on_mesh(config: Mapping[str, Any], task: Task, method: Strategy) -> tuple[ShardedWorker, list[str]]:
    """A worker that lies on several processes, as the first rank of each stage sees it, and what there is to say of it.

    Models and rows are on the meta device, and the mesh is played: no model is made.

    Raises
    ------
    ConfigError : with all that does not fit.
    """
    if faults := misfits(config, task, method):
        raise ConfigError(faults)
    with warnings.catch_warnings(record=True) as warned, refused("task", faults), collecting(faults):
        worker, *others = [play(config, task, {"pipeline": rank}) for rank in range(degrees(config)["pipeline"])]
        pass_through(config, task, [worker, *others])
    if faults:
        raise ConfigError(faults)
    return worker, [*dict.fromkeys(str(warning.message) for warning in warned)]


def cut_as_on_mesh(config: Mapping[str, Any], task: Task, method: Strategy) -> tuple[Part, ...]:
    """The parts in which ranks of the mesh would hold a worker's row, which is whole here.

    Raises
    ------
    ConfigError : with all that does not fit the mesh.
    """
    if faults := misfits(config, task, method):
        raise ConfigError(faults)
    with warnings.catch_warnings(), collecting(faults):
        warnings.filterwarnings("ignore", "micro_batches=")  # nobody waits for another
        ranks = [play(config, task, place) for place in places(config)]
    if faults:
        raise ConfigError(faults)
    return joined((rank.layout, rank.partition) for rank in ranks)


def places(config: Mapping[str, Any]) -> list[dict[str, int]]:
    """Where the ranks of the first worker are in the mesh, by axis."""
    by_axis = degrees(config) | {"worker": 1}
    return [dict(zip(AXES, place, strict=True)) for place in product(*(range(by_axis[axis]) for axis in AXES))]


def play(config: Mapping[str, Any], task: Task, place: Mapping[str, int] | None = None) -> ShardedWorker:
    """A rank's piece of a worker, on the meta device, of a run whose workers lie on several processes.

    place : where the rank is, by axis; the first one unless given.
    """
    zero = min(config["zero"], 2)  # stage 3 needs processes, and leaves a rank as many columns
    precision = "bf16" if config["precision"] == "fp16" else config["precision"]  # without a scale, which needs numbers
    with shapes_only():
        settings = {**on_mesh_by(config), "zero": zero, "precision": precision}
        return on_mesh(task, PlayedMesh(degrees(config), place), **settings)


def on_mesh_by(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords that a run gives `on_mesh`."""
    settings = {name: config[name] for name in ("zero", "precision", "sequence", "micro_batches", "recompute", "seed")}
    return settings | {"schedule": config["mesh"]["schedule"]}


@contextmanager
def collecting(faults: list[str]) -> Iterator[None]:
    """Add each refusal inside to the faults, a line each, and those of all blocks as one."""
    try:
        yield
    except ValueError as error:
        lines = [f"mesh: {line}" for line in folded(str(error).splitlines())]
        faults += [line for line in lines if line not in faults]


def misfits(config: Mapping[str, Any], task: Task, method: Strategy | None = None) -> list[str]:
    """A line for everything of a task, and of a method, that does not fit the mesh."""
    by_axis, parts = degrees(config), config["micro_batches"]
    faults = [f"mesh: {fault}" for fault in _undivided(config, task)]
    with shapes_only():
        model = task.model()
    if by_axis["tensor"] > 1 and isinstance(task, SplitTask):
        with collecting(faults):
            check(model, task.plan(model), Axis("tensor", by_axis["tensor"]))
    if by_axis["pipeline"] * parts > 1 and isinstance(task, StagedTask):
        with collecting(faults):
            check_stages(model, task.layers(model), by_axis["pipeline"], config["mesh"]["schedule"], parts)
    cut = by_axis["tensor"] > 1 or (by_axis["shard"] > 1 and config["zero"] > 0)
    if method is not None and (cut or by_axis["pipeline"] > 1):
        with collecting(faults):
            fitted(method, [Part("some ranks", [(0, 1)], Layout.flat(1), cut)], config["pieces"])
    return faults


def pass_through(config: Mapping[str, Any], task: Task, workers: Sequence[ShardedWorker]) -> None:
    """Refuse what a minibatch cannot pass, forward and backward: of a worker, played ranks with all of its stages."""
    loss = objective(task, workers[-1].computation.vocabulary)
    models = [model for worker in workers for model in worker.computation.modules]
    stages = {number: stage for model in models for number, stage in stages_here(model).items()}
    batch = tuple(part.to("meta") for part in task.batch(0, [0]))
    if not stages:
        workers[0].compute(loss, [batch], 0)
        return
    if faults := [fault for model in models if config["zero"] == 3 for fault in sharing_faults(model)]:
        raise ValueError("\n".join(faults))
    parts = degrees(config)["shard"] * config["micro_batches"]
    inputs, targets = loss.inputs_targets(*(part[0, : part.shape[1] // parts] for part in batch))
    x: Any = None
    for number in sorted(stages):
        x = stages[number](*(() if x is None else (x,)), inputs=inputs)
    loss.criterion(x, targets).backward()
    named = [pair for worker in workers for pair in worker.computation.parameters.items()]
    all_used(dict.fromkeys(name for name, parameter in named if parameter.grad is None))


def _undivided(config: Mapping[str, Any], task: Task) -> Iterator[str]:
    """Batches and sequences that ranks cannot share equally: all lines at once, not the first."""
    by_axis = degrees(config)
    samples, *length = task.batch(0, [0])[0].shape[1:]
    yield from batch_faults(samples, by_axis["shard"], config["micro_batches"])
    if config["sequence"] and length and (length[0] - 1) % by_axis["tensor"]:
        yield (
            f"the context must be a multiple of mesh.tensor={by_axis['tensor']} with sequence=true, got "
            f"{length[0] - 1}: its ranks take equal parts; change task.context or the mesh"
        )
