"""The story of a run: data -> gradient -> strategy.step -> record."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from commeff.communicator import Communicator
from commeff.core.strategy import Strategy
from commeff.replicas import Stacked, Vmapped
from commeff.training.checkpoint import Checkpoints
from commeff.training.evaluation import measure_final
from commeff.training.recorder import Recorder
from commeff.training.resharding import gather_rows, shard_rows, to_device
from commeff.training.run import Run
from commeff.training.stop_vote import StopVote
from commeff.training.task import Task

ENGINES = {"loop": Stacked, "vmap": Vmapped}


def train(
    task: Task,
    strategy: Strategy,
    communicator: Communicator,
    *,
    steps: int,
    engine: Literal["loop", "vmap"] = "loop",
    evaluate_every: int = 0,
    l2: float = 0.0,
    groups: Callable[[str, nn.Parameter], int] | None = None,
    recorder: Recorder | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Callable[[int, dict[str, Any]], None] = lambda step, row: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train for `steps` model updates and return the summary.

    With checkpoints, it goes on where the last run in the same folder stopped. The summary's `state` is "done",
    "diverged" (a loss is no longer finite) or "stopped" (should_stop said so, and a checkpoint was written). `seconds`
    is the time of the steps alone, up to when they are over everywhere; on several processes `exposed_seconds` is what
    rank 0 waited for others in them.
    What of the gradients can be sent early (`commeff.transforms.bucketed`) is sent while others are still computed.
    Losses and accuracies are those of the average model with re-estimated BatchNorm statistics, `test_*` on data that
    nothing was chosen by; `local_*` are means over the workers' own models with their own statistics.
    """
    if task.workers != communicator.n:
        raise ValueError(
            f"the task deals its data to {task.workers} workers but the run has {communicator.n}; make both equal"
        )
    if engine not in ENGINES:
        raise ValueError(f"engine = {engine!r} was asked for; choose from {', '.join(ENGINES)}")
    replicas = ENGINES[engine](task.model, communicator.workers, communicator.seed, groups)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    run = Run(replicas, strategy, communicator, losses=torch.zeros_like(replicas.parameters[:, 0]))
    saved = checkpoints.load() if checkpoints else None
    if saved:
        saved = to_device(shard_rows(saved, communicator), replicas.parameters.device)
        if saved["step"] > steps:
            raise ValueError(
                f"the checkpoint stands at step {saved['step']}; {steps} steps were asked for, which is less"
            )
        run.load_state_dict(saved)
    if recorder:
        recorder.rewind(run.step)  # what a killed run wrote after its last checkpoint will be written again
        if run.row and [row["step"] for row in recorder.rows()[-1:]] != [run.row["step"]]:
            raise ValueError(f"{recorder.path} lacks rows that the checkpoint knows of; delete the run to start anew")

    every, stop_vote = evaluate_every or max(1, steps // 20), StopVote(communicator)
    for communicator.step in range(run.step, steps):
        if stop_vote.passed(should_stop()):
            _save(run, checkpoints)
            return {"state": "stopped", "steps": run.step}
        run.advance(task, l2)
        due, saves = run.step % every == 0 or run.step == steps, bool(checkpoints and checkpoints.due(run.step))
        if due or saves:
            with run.clock():  # what has been done is done when the last process has done it
                communicator.meet()
        if due:
            run.measure(task)
            if recorder:
                recorder.write(run.row)
            if not all(math.isfinite(value) for value in run.row.values()):
                return {"state": "diverged", "steps": run.step, "workers": communicator.n} | run.row
        progress(run.step, run.row)
        if saves or run.step == steps:
            _save(run, checkpoints)
        if due or saves:
            communicator.meet()
    stop_vote.end()
    strategy.drain()
    final = measure_final(task, replicas, communicator)
    return {"state": "done", "steps": steps, "workers": communicator.n} | run.row | final


def _save(run: Run, checkpoints: Checkpoints | None) -> None:
    """A checkpoint of all workers, written at rank 0; every process calls it."""
    whole = gather_rows(run.state_dict(), run.communicator) if checkpoints else None
    if checkpoints and whole is not None:
        checkpoints.save(whole)
