"""A task's worker on a mesh: its model, split, and this process's piece of it."""

from __future__ import annotations

from torch import nn

from commeff.replicas import ShardedWorker
from commeff.sharding import Axis, Computation, Layers, Mesh, OnePass, split
from commeff.sharding.deferred import Numbers, deferred, fill
from commeff.sharding.fit import check_stages, splits_outputs
from commeff.sharding.recompute import recompute as applied
from commeff.training.task import SplitTask, StagedTask, Task


def on_mesh(
    task: Task,
    mesh: Mesh,
    *,
    zero: int = 0,
    precision: str = "fp32",
    sequence: bool = False,
    schedule: str = "1f1b",
    micro_batches: int = 1,
    recompute: str = "none",
    seed: int = 0,
) -> ShardedWorker:
    """This process's piece of its worker. Every process of the mesh calls it.

    Parameters
    ----------
    task : Task
        With a `plan` if there are several tensor ranks, and `layers` if there are several stages or micro-batches,
        or activations are computed anew.
    mesh : Mesh
        The processes of all workers.
    zero : int
        The stage of ZeRO over the shard axis.
    precision : str
        In which the model computes: "fp32", as the task makes it, "bf16", "fp16" or "bf16_reduce_fp32".
    sequence : bool
        Whether tensor ranks share the sequence between the layers that are split.
    schedule : str
        In which order pipeline ranks compute micro-batches: one of `commeff.sharding.schedules.SCHEDULES`.
    micro_batches : int
        Parts that a rank's share of a minibatch is cut into.
    recompute : str
        Activations that are computed anew in backward: one of `commeff.sharding.recompute.RECOMPUTATIONS`.
    seed : int
        The key of dropout's randomness.

    Examples
    --------
    Every process of four would do this, and then train as one that hosts whole workers:

        mesh = Mesh(worker=2, tensor=2)
        worker = on_mesh(task, mesh, sequence=True)
        communicator = Communicator(group=mesh.group("worker"))
        train(task, strategy, communicator, RunSettings(steps=100), worker=worker)
    """
    tensor, pipeline = mesh.axis("tensor"), mesh.axis("pipeline")
    staged = pipeline.size * micro_batches > 1
    model, numbers, vocabulary = _split(task, tensor, sequence)
    if staged:  # before recomputation looks for the layers
        check_stages(model, _layers(task, model), pipeline.size, schedule, micro_batches)
    if recompute != "none":
        applied(model, _layers(task, model), recompute, tensor)
    piped: Computation | None = None
    if staged:
        from commeff.sharding.pipeline import Pipeline  # with FSDP, which takes half as long to import as torch

        piped = Pipeline(
            model,
            _layers(task, model),
            pipeline,
            schedule=schedule,
            micro_batches=micro_batches,
            vocabulary=vocabulary,
        )
    if zero == 3:
        from commeff.sharding.fully import fill_shards, fully

        fully(model, mesh, precision=precision)
        fill_shards(model, numbers, mesh.axis("shard"))
    else:
        fill(model, numbers)
    return ShardedWorker(piped or OnePass(model, vocabulary), mesh, zero=zero, precision=precision, seed=seed)


def _layers(task: Task, model: nn.Module) -> Layers:
    if not isinstance(task, StagedTask):
        raise ValueError(
            "a task whose model lies on several stages, takes micro-batches or is computed anew must have layers, got "
            f"{type(task).__name__} without: say by the names of its modules what they are, or give pipeline=1, "
            "micro_batches=1 and recompute=none"
        )
    return task.layers(model)


def _split(task: Task, tensor: Axis, sequence: bool) -> tuple[nn.Module, Numbers, Axis | None]:
    """The task's model over tensor ranks, its numbers, and the axis over which its outputs are split, if they are."""
    model, numbers = deferred(task.model)
    if tensor.size == 1:
        return model, numbers, None
    if not isinstance(task, SplitTask):
        raise ValueError(
            f"a task whose model is split over {tensor.size} tensor ranks must have a plan, got {type(task).__name__} "
            "without: say by the names of its modules how they are split, or give tensor=1"
        )
    plan = task.plan(model)
    vocabulary = tensor if splits_outputs(model, plan) else None
    split(model, plan, tensor, sequence=sequence)
    return model, numbers, vocabulary
