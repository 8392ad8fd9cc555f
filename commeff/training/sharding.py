"""A task's worker on a mesh: its model, split, and this process's piece of it."""

from __future__ import annotations

from commeff.parallelism import Computation, Mesh, OnePass, split
from commeff.parallelism.fit import splits_outputs
from commeff.replicas import ShardedWorker
from commeff.training.task import SplitTask, Task


def on_mesh(task: Task, mesh: Mesh, *, zero: int = 0, sequence: bool = False, seed: int = 0) -> ShardedWorker:
    """This process's piece of its worker. Every process of the mesh calls it.

    Parameters
    ----------
    task : Task
        With a `plan` if there are several tensor ranks.
    mesh : Mesh
        The processes of all workers.
    zero : int
        The stage of ZeRO over the shard axis.
    sequence : bool
        Whether tensor ranks share the sequence between the layers that are split.
    seed : int
        The key of dropout's randomness.

    Examples
    --------
    Every process of four would do this, and then train as one that hosts whole workers:

        mesh = Mesh(worker=2, tensor=2)
        worker = on_mesh(task, mesh, sequence=True)
        communicator = Communicator.per_process(seed=0, group=mesh.group("worker"))
        train(task, strategy, communicator, worker=worker, steps=100)
    """
    return ShardedWorker(_computation(task, mesh, sequence), mesh, zero=zero, seed=seed)


def _computation(task: Task, mesh: Mesh, sequence: bool) -> Computation:
    model, tensor = task.model(), mesh.axis("tensor")
    if tensor.size == 1:
        return OnePass(model)
    if not isinstance(task, SplitTask):
        raise ValueError(
            f"a task whose model is split over {tensor.size} tensor ranks must have a plan, got {type(task).__name__} "
            "without: say by the names of its modules how they are split, or give tensor=1"
        )
    plan = task.plan(model)
    vocabulary = tensor if splits_outputs(model, plan) else None
    split(model, plan, tensor, sequence=sequence)
    return OnePass(model, vocabulary)
