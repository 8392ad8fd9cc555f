"""The story of a run: batch, gradient, strategy.step, record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from commeff.communicator import Communicator
from commeff.core.events import EventClock
from commeff.core.strategy import Strategy
from commeff.replicas import ShardedWorker
from commeff.replicas.stacked import engine_in
from commeff.training.checkpoint import Checkpoints, ended
from commeff.training.evaluation import Replicas, at_result, measure_final, yardsticks_of_pieces
from commeff.training.participation import Participation
from commeff.training.recorder import Recorder
from commeff.training.resume import resume
from commeff.training.run import Run
from commeff.training.shared_checkpoints import SharedCheckpoints
from commeff.training.stop_vote import StopVote
from commeff.training.task import PartitionedTask, Task, objective
from commeff.training.verdict import blown_up, not_finite


def train(
    task: Task,
    strategy: Strategy,
    communicator: Communicator,
    *,
    steps: int,
    engine: Literal["loop", "vmap"] = "loop",
    precision: str | None = None,
    worker: ShardedWorker | None = None,
    evaluate_every: int = 0,
    l2: float = 0.0,
    groups: Callable[[str, nn.Parameter], int] | None = None,
    participation: Participation | None = None,
    event_clock: EventClock | None = None,
    recorder: Recorder | None = None,
    checkpoints: Checkpoints | None = None,
    origin: str | Path | None = None,
    progress: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train for `steps` model updates and return the summary. Every process of the run calls it.

    Parameters
    ----------
    task : Task
        Model, data and loss.
    strategy : Strategy
        The method, which need not have been started.
    communicator : Communicator
        The workers, and which of them this process hosts.
    steps : int
        Model updates in all, those before a resume included.
    engine : {"loop", "vmap"}
        How the models of the hosted workers are run: one after the other, or as one batched graph.
    precision : {"fp32", "bf16", "fp16", "bf16_mixed"}, optional
        In which these models compute, "fp32" unless given; what the method sees stays as they were made. "bf16_mixed"
        is `torch.autocast` of forward passes, of whole models. A `worker` has its own.
    worker : ShardedWorker, optional
        This process's piece of a worker, where workers lie on several processes; the communicator is then that of the
        processes that hold the same piece, and the strategy is `fitted` to it.
    evaluate_every : int
        Steps between two rows of measurements; 0: a twentieth of `steps`.
    l2 : float
        l2 x is added to each gradient, before it is compressed.
    groups : callable, optional
        The parameter group of each parameter, from its name and itself; of whole models.
    participation : Participation, optional
        Who takes part in which step; everybody in all, unless given. Absent workers stay where they are, and compute
        and send nothing. Where the others agree after a step, those who return get what they agree on, and are billed.
    event_clock : EventClock, optional
        When workers finish their gradients, by a simulated clock (`commeff.cluster.events`): a step is then n
        gradients, in one event of all or in several of some, and rows have `events` and `simulated_seconds`.
    recorder : Recorder, optional
        Where the rows go; for rank 0 of the run only.
    checkpoints : Checkpoints, optional
        Where checkpoints go. The run goes on from the last one in the same folder, which must be its own: of the same
        method, workers, seed and model, unless the checkpoints name their run themselves.
    origin : path, optional
        The folder of another run of this model, with its `checkpoints/` and its metrics.jsonl. A run that has no
        checkpoint of its own goes on from the last of these, on whatever mesh; with another number of workers, all
        begin at the mean of the parameters, and what the method remembers begins anew.
    progress : callable
        Is called with the step and the last row after every step.
    should_stop : callable
        Is called before every step; when it returns True at any process, all stop before the same step.

    Returns
    -------
    dict
        The last row, and `state`: "done", "diverged" (a loss is no longer finite, or out of all proportion at the end;
        `reason` says so in words) or "stopped" (a checkpoint was written). `seconds` is the time of the steps alone,
        up to when they are over everywhere; on several processes `exposed_seconds` is the part of it in which rank 0
        waited for others. Losses and accuracies are those of the average model with re-estimated BatchNorm statistics,
        `test_*` on data that nothing was chosen by; `local_*` are means over the workers' own models with their own
        statistics; `start_loss` and `parameter_norm` are what the end is held against.
    """
    if task.workers != communicator.n:
        raise ValueError(f"the task must have the run's {communicator.n} workers, got {task.workers}: make both equal")
    replicas: Replicas
    loss: Any = task.loss
    everybody = communicator
    if worker is None:
        replicas = engine_in(precision or "fp32", engine)(task.model, communicator.workers, communicator.seed, groups)
    else:
        for fault in _ignored(worker, engine, precision, groups):
            raise ValueError(fault)
        everybody = Communicator.per_process(communicator.seed)
        replicas, loss = worker, objective(task, worker.computation.vocabulary)
        checkpoints = checkpoints and SharedCheckpoints(checkpoints)
    if isinstance(task, PartitionedTask):
        communicator.samples = torch.tensor(task.sizes)
    run = Run.start(replicas, strategy, communicator, everybody)
    run.participation = None if participation is None or participation.everybody else participation
    run.event_clock = event_clock
    if event_clock is not None and run.participation is not None:
        raise ValueError(
            "an event clock needs all workers, got participation too: who is absent finishes nothing; omit it"
        )
    stop_vote = StopVote(everybody) if everybody.transport.size > 1 else None
    if worker is not None:  # of the model that it begins with, wherever it goes on from
        with worker.uncounted():
            run.began = yardsticks_of_pieces(task, worker, communicator)
    resume(run, checkpoints, recorder, steps, origin)
    every = evaluate_every or max(1, steps // 20)

    with ended(checkpoints):
        for step in range(run.step, steps):
            stops = should_stop()
            if stop_vote.passed(stops) if stop_vote else stops:
                if checkpoints:
                    checkpoints.keep(run)
                return {"state": "stopped", "steps": run.step}

            with run.clock():
                for _ in run.events(step):
                    run.gather_workers()
                    batches = run.draw(task)
                    run.update(task, batches, run.gradient(loss, batches, l2), l2)
                    del batches  # before the next are drawn

            last = run.step == steps
            records, saves = last or run.step % every == 0, bool(checkpoints and checkpoints.due(run.step))
            if records or saves:
                run.meet()
            if records:
                row = run.record(task, recorder)
                if reason := not_finite(row):
                    return {"state": "diverged", "reason": reason, "steps": run.step, "workers": communicator.n} | row
            progress(run.step, run.row)
            if checkpoints and (saves or last):
                checkpoints.keep(run)
            if records or saves:
                everybody.meet()  # nobody's clock starts while another still evaluates or writes

    if stop_vote:
        stop_vote.end()
    strategy.drain()
    with at_result(replicas, strategy, communicator), run.agreeing():
        final = run.row | measure_final(task, replicas, communicator, run.began)
    reason = blown_up(final)
    verdict = {"state": "diverged", "reason": reason} if reason else {"state": "done"}
    return verdict | {"steps": steps, "workers": communicator.n} | final


def _ignored(worker: ShardedWorker, engine: str, precision: str | None, groups: object) -> Iterator[str]:
    """What whole models could be told and this worker, which is made already, could not, in words."""
    if engine != "loop":
        yield f"engine must be loop for workers in pieces, got {engine}: each process computes one piece; omit it"
    if precision not in (None, worker.precision):
        yield f"precision must be the worker's {worker.precision}, got {precision}: give it to on_mesh, which makes it"
    if groups is not None:
        yield (
            "groups must be omitted for workers in pieces, got some: a rank need not hold tensors of each group; give "
            "each worker one process, or give groups to DistributedOptimizer"
        )
