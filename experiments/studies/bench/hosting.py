"""16 workers on two processes against one: how much faster a run becomes, and whether it stays the same run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist

from commeff import Communicator, methods
from commeff.experiments.measure.forks import on_forks, time_in_turns
from commeff.experiments.measure.timing import ratio
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.subjects import SGD, noise
from commeff.experiments.tasks.language import Language
from commeff.replicas import Stacked
from commeff.training.run import Run
from commeff.training.task import Task

PROCESSES, WORKERS = 2, 16
STEPS = 4  # in a block, and before trajectories are compared


def tasks(dtype: str) -> dict[str, Task]:
    """ResNet-20 on noise with the batches of the CIFAR-10 grid, and the GPT on the text of this file."""
    resnet = noise("resnet20", WORKERS, "group", dtype=dtype)
    return {"ResNet-20": resnet, "GPT": Language(WORKERS, data=__file__, dtype=dtype)}


def start_training(task: Task, communicator: Communicator) -> Run:
    """Start parallel SGD on a task, as the trainer does."""
    return Run.start(Stacked(task.model, communicator.workers), methods.psgd(SGD), communicator)


def advance(run: Run, task: Task) -> None:
    """One step, as the trainer takes it."""
    run.communicator.step = run.step
    gradient = run.gradient(task.loss, run.draw(task))
    run.finish_step(run.strategy.step(run.replicas.parameters, gradient, run.communicator, donate=True))


def speed(task: Task, rounds: int, steps: int) -> float:
    """Steps a second of two processes that share the workers, over those of one that hosts all; they take turns."""

    def measure(communicator: Communicator) -> dict[str, list[float]]:
        shared, single = start_training(task, communicator), start_training(task, Communicator(workers=task.workers))
        both: dict[str, Callable[[], None]] = {"together": partial(advance, shared, task), "alone": lambda: None}
        if dist.get_rank() == 0:
            both["alone"] = partial(advance, single, task)
        return time_in_turns(both, rounds, steps)

    return ratio(on_forks(PROCESSES, task.workers, measure), "alone", "together")


def digits(task: Task, steps: int) -> float:
    """Decimal digits on which the two agree after some steps: their largest difference in a parameter, over the
    largest change of one.

    The task should be in float64: in float32 another order of additions changes the fifth digit of a ResNet.
    """

    def measure(communicator: Communicator) -> dict[str, float]:
        shared, single = start_training(task, communicator), start_training(task, Communicator(workers=task.workers))
        first = single.replicas.parameters.clone()
        for _ in range(steps):
            advance(shared, task)
            advance(single, task)
        last = single.replicas.parameters
        off = (shared.replicas.parameters - last[list(communicator.workers)]).abs().max()
        dist.all_reduce(off, dist.ReduceOp.MAX)
        return {"difference": float(off), "change": float((last - first).abs().max())}

    reached = on_forks(PROCESSES, task.workers, measure)
    return -math.log10(max(reached["difference"] / reached["change"], torch.finfo(torch.float64).eps))


def run(rounds: int, steps: int = STEPS) -> Iterator[MeasuredRatio]:
    """The figures of both tasks."""
    for (name, task), exact in zip(tasks("float32").items(), tasks("float64").values(), strict=True):
        label = f"{name}, {task.workers} workers"
        yield MeasuredRatio(label, f"speed, {PROCESSES} processes / 1", speed(task, rounds, steps), at_least=1.6)
        agree = f"digits that agree after {steps} steps in float64"
        yield MeasuredRatio(label, agree, digits(exact, steps), at_least=10)
