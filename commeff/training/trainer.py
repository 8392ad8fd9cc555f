"""The story of a run: batch, gradient, strategy.step, record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from commeff.communicator import Communicator, barrier
from commeff.core.strategy import Strategy
from commeff.replicas import ShardedWorker
from commeff.replicas.engines import engine_in
from commeff.replicas.stacked import compile_models
from commeff.sharding.layers import stages_here
from commeff.training.checkpoint import Checkpoints, ended
from commeff.training.divergence import blown_up, not_finite
from commeff.training.evaluation import Replicas, at_result, measure_final, yardsticks_of_pieces
from commeff.training.recorder import Recorder
from commeff.training.resume import resume
from commeff.training.run import Run
from commeff.training.settings import RunSettings
from commeff.training.shared_checkpoints import SharedCheckpoints
from commeff.training.stop_vote import StopVote
from commeff.training.task import PartitionedTask, Task, objective


def train(
    task: Task,
    strategy: Strategy,
    communicator: Communicator,
    settings: RunSettings,
    *,
    worker: ShardedWorker | None = None,
    recorder: Recorder | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
    should_stop: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Train as the settings say and return the summary. Every process of the run calls it.

    Parameters
    ----------
    task : Task
        Model, data and loss.
    strategy : Strategy
        The method, which need not have been started.
    communicator : Communicator
        The workers, and which of them this process hosts.
    settings : RunSettings
        How long the run is, how models are computed, who takes part when, and where it begins.
    worker : ShardedWorker, optional
        This process's piece of a worker, where workers lie on several processes; the communicator is then that of the
        processes that hold the same piece, and the strategy is `fitted` to it.
    recorder : Recorder, optional
        Where the rows go; for rank 0 of the run only.
    checkpoints : Checkpoints, optional
        Where checkpoints go. The run goes on from the last one in the same folder, which must be its own: of the same
        method, workers, seed and model, unless the checkpoints name their run themselves.
    progress : callable
        Is called with the step and the last row after every step.
    should_stop : callable, optional
        Is called before every step; when it returns True at any process, all stop before the same step.

    Returns
    -------
    dict
        The last row, and `state`: "done", "diverged" (a loss is no longer finite, or out of all proportion at the end;
        `reason` says so in words) or "stopped" (a checkpoint was written). `seconds` is the time of the steps alone,
        up to when they are over everywhere; on several processes `exposed_seconds` is the part of it in which rank 0
        waited for others, and on a GPU `peak_memory_bytes` is what it had allocated there at most. `mfu` is model FLOP
        utilisation since the row before, if the settings have `sample_seconds`. `gradient_norm` is
        what a clip bounded in the last step, before: of the average, or a mean over workers that keep their gradients;
        there is none with absent workers, an event clock or fp16. Losses and accuracies are those of the average model
        with re-estimated BatchNorm statistics, `test_*` on data that nothing was chosen by; `local_*` are means over
        the workers' own models with their own statistics; `start_loss` and `parameter_norm` are what the end is held
        against.
    """
    if task.workers != communicator.n:
        raise ValueError(f"the task must have the run's {communicator.n} workers, got {task.workers}: make both equal")
    replicas: Replicas
    loss: Any = task.loss
    everybody = communicator
    if worker is None:
        engine = engine_in(settings.precision or "fp32", settings.engine)
        replicas = stacked = engine(task.model, communicator.workers, communicator.seed, settings.groups)
        modules: Sequence[nn.Module] = stacked.models
    else:
        for fault in _ignored(worker, settings):
            raise ValueError(fault)
        everybody = Communicator(seed=communicator.seed)
        modules = [part for model in worker.computation.modules for part in stages_here(model).values() or [model]]
        replicas, loss = worker, objective(task, worker.computation.vocabulary)
        checkpoints = checkpoints and SharedCheckpoints(checkpoints)
    if settings.compiled:
        compile_models(modules)
    if isinstance(task, PartitionedTask):
        communicator.context.samples = torch.tensor(task.sizes)
    run = Run.start(replicas, strategy, communicator, everybody)
    steps, every, l2 = settings.steps, settings.rows_every, settings.l2
    run.participation, run.event_clock = settings.absences, settings.event_clock
    run.sample_seconds = settings.sample_seconds
    stop_vote = StopVote(everybody) if everybody.transport.size > 1 else None
    if worker is not None:
        run.measure_start = partial(yardsticks_of_pieces, task, worker, communicator)
    resume(run, checkpoints, recorder, steps, settings.origin)
    run.began = run.began or run.measure_start()

    with ended(checkpoints):
        for step in range(run.step, steps):
            stops = should_stop is not None and should_stop()
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
            records = last or run.step % every == 0
            saves = bool(checkpoints and checkpoints.due(run.step))
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
                barrier(everybody)  # nobody's clock starts while another still evaluates or copies

        if stop_vote:
            stop_vote.end()
        strategy.drain()
        with at_result(replicas, strategy, communicator), run.agreeing():
            final = run.row | measure_final(task, replicas, communicator, run.began)
    reason = blown_up(final)
    verdict = {"state": "diverged", "reason": reason} if reason else {"state": "done"}
    return verdict | {"steps": steps, "workers": communicator.n} | final


def _ignored(worker: ShardedWorker, settings: RunSettings) -> Iterator[str]:
    """What whole models could be told and this worker, which is made already, could not, in words."""
    if settings.engine != "loop":
        yield f"engine must be loop for workers in pieces, got {settings.engine}: a process computes one piece; omit it"
    if settings.precision not in (None, worker.precision):
        yield (
            f"precision must be the worker's {worker.precision}, got {settings.precision}: give it to on_mesh, which "
            "makes it"
        )
    if settings.compiled and not worker.computation.passes:
        yield (
            "models must not be compiled in a schedule that divides backward: a compiled stage would do all of it "
            "twice; give schedule=1f1b, gpipe or interleaved, or omit compiled=True"
        )
    if settings.groups is not None:
        yield (
            "groups must be omitted for workers in pieces, got some: a rank need not hold tensors of each group; give "
            "each worker one process, or give groups to DistributedOptimizer"
        )
