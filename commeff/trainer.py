"""The story of a run: data -> gradient -> strategy.step -> record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from commeff.checkpoint import Checkpoints
from commeff.communicator import Communicator
from commeff.evaluation import measure, measure_locals
from commeff.recorder import Recorder
from commeff.replicas import Stacked, Vmapped
from commeff.strategy import Strategy
from commeff.task import Task

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
    progress: Callable[[int, dict[str, Any]], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train for `steps` model updates and return the summary; with checkpoints, go on where the last run of the same
    folder stopped.

    The summary's `state` is "done", "diverged" (the loss is no longer finite) or "stopped" (should_stop said so, and a
    checkpoint was written). `seconds` is the time of the steps alone. Losses and accuracies are those of the average
    model with re-estimated BatchNorm statistics; `local_*` are means over the workers' own models with their own
    statistics.
    """
    if task.workers != communicator.n:
        raise ValueError(
            f"the task deals its data to {task.workers} workers but the run has {communicator.n}; make both equal"
        )
    if engine not in ENGINES:
        raise ValueError(f"engine = {engine!r} was asked for; choose from {', '.join(ENGINES)}")
    replicas = ENGINES[engine](task.model, communicator.workers, communicator.seed, groups)
    x = replicas.parameters
    strategy.start(x, replicas.layout, communicator)
    first, seconds, counted, row = 0, 0.0, 0, dict[str, Any]()
    losses = torch.zeros(len(communicator.workers), dtype=x.dtype, device=x.device)

    def save(step: int) -> None:
        if checkpoints is not None:
            state = {
                "step": step,
                "seconds": seconds,
                "losses": losses,
                "counted": counted,
                "row": row,
                "replicas": replicas.state_dict(),
            }
            checkpoints.save(state | {"strategy": strategy.state_dict(), "ledger": communicator.ledger.state_dict()})

    saved = checkpoints.load() if checkpoints is not None else None
    if saved is not None:
        if saved["step"] > steps:
            raise ValueError(
                f"the checkpoint stands at step {saved['step']}; {steps} steps were asked for, which is less"
            )
        first, seconds, losses, counted, row = (saved[name] for name in ("step", "seconds", "losses", "counted", "row"))
        replicas.load_state_dict(saved["replicas"])
        strategy.load_state_dict(saved["strategy"])
        communicator.ledger.load_state_dict(saved["ledger"])
        if recorder is not None:
            recorder.rewind(first)

    every = evaluate_every or max(1, steps // 20)
    for communicator.step in range(first, steps):
        if should_stop():
            save(communicator.step)
            return {"state": "stopped", "steps": communicator.step}
        begun = time.perf_counter()
        batches = [
            task.batch(communicator.step * strategy.accumulate + r, communicator.workers)
            for r in range(strategy.accumulate)
        ]
        strategy.post(x, communicator)
        gradient, loss = replicas.compute(task.loss, batches, communicator.step, l2)
        replicas.load(strategy.step(x, gradient, communicator, donate=True))
        losses, counted = losses + loss, counted + 1
        seconds += time.perf_counter() - begun

        done = communicator.step + 1
        if done % every == 0 or done == steps:
            mean_loss = float(communicator.observe(losses / counted))
            losses, counted = torch.zeros_like(losses), 0
            row = {"step": done, "minibatch_loss": mean_loss, "lr": strategy.local.lr, "seconds": seconds}
            row |= measure(task, replicas, communicator) if math.isfinite(mean_loss) else {}
            diverged = not all(math.isfinite(value) for value in row.values())
            row |= {"payload_bytes": communicator.ledger.payload_bytes, "wire_bytes": communicator.ledger.wire_bytes}
            if recorder is not None:
                recorder.write(row)
            if diverged:
                return {"state": "diverged", "steps": done, "workers": communicator.n} | row
        if progress is not None:
            progress(done, row)
        if checkpoints is not None and checkpoints.due(done):
            save(done)
    save(steps)
    return (
        {"state": "done", "steps": steps, "workers": communicator.n}
        | row
        | measure_locals(task, replicas, communicator)
    )
