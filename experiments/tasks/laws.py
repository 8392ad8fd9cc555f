"""What must hold of every task, built in or the reader's own: `check(kind)` raises AssertionError otherwise.

A law is a function of `TaskCase`; its sentence says what was measured, and what to do.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from commeff import Communicator, methods
from commeff.compressors.laws.problems import require
from commeff.training.settings import RunSettings
from commeff.training.task import Task
from commeff.training.trainer import train

WORKERS, STEPS = 4, 3


@dataclass(frozen=True)
class TaskCase:
    """A task class with its default arguments: `build()` gives a fresh task for `WORKERS` workers."""

    name: str
    build: Callable[[], Task]


def cases(kind: Callable[..., Task]) -> list[TaskCase]:
    """The task for `WORKERS` workers, all else at its defaults; TypeError for a parameter that has none."""
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name == "workers":
            arguments[name] = WORKERS
        elif name == "seed":
            arguments[name] = 3
        elif parameter.default is parameter.empty:
            arguments |= {name: None} if name == "data_dir" else {}
            if name not in arguments:
                raise TypeError(f"{kind.__name__} requires {name!r}, for which the laws know no value: give a default")
    require(
        "workers" in arguments,
        f"{kind.__name__} takes no `workers`: a task deals its data to that many, and keeps the number as self.workers",
    )
    return [TaskCase(kind.__name__, partial(kind, **arguments))]


def has_what_a_run_asks_for(case: TaskCase) -> None:
    """`workers` as asked, `size`, a model, and minibatches (w, b, ...)."""
    task = case.build()
    workers: object = getattr(task, "workers", None)
    require(
        workers == WORKERS,
        f"{case.name}: self.workers is {workers!r}: set it to the {WORKERS} that the constructor gets",
    )
    size: object = getattr(task, "size", None)
    require(
        isinstance(size, int) and size >= 0,
        f"{case.name}: self.size is {size!r}: set it to the number of training samples, or to 0",
    )
    model: object = task.model()
    require(isinstance(model, nn.Module), f"{case.name}: model() gives a {type(model).__name__}: return an nn.Module")
    batch: Any = task.batch(0, [0, 2])
    require(
        isinstance(batch, tuple) and all(isinstance(part, Tensor) for part in batch),
        f"{case.name}: batch() gives a {type(batch).__name__}: return a tuple of tensors, each (w, b, ...)",
    )
    shapes = [tuple(part.shape) for part in batch]
    require(
        all(len(shape) >= 2 and shape[0] == 2 for shape in shapes),
        f"{case.name}: the batch of 2 workers has shapes {shapes}: every part begins (2, b, ...)",
    )


def draws_batches_by_the_step(case: TaskCase) -> None:
    """A batch is a pure function of the step and the workers: asked again, out of order, of a fresh task, whatever
    the state of global generators.
    """
    task, everybody = case.build(), range(WORKERS)
    first = [task.batch(step, everybody) for step in range(STEPS)]
    copies = [tuple(part.clone() for part in batch) for batch in first]
    advice = "draw from a generator made of (seed, step, worker), and keep no count of calls"
    for when, other in (("asked again", task), ("of a fresh task", case.build())):
        with scrambled():
            for step in reversed(range(STEPS)):
                off = _difference(other.batch(step, everybody), copies[step])
                require(not off, f"{case.name}: batch({step}) {when} is another ({off}): {advice}")
    changed = [step for step in range(STEPS) if _difference(first[step], copies[step])]
    require(not changed, f"{case.name}: a later call wrote into the batch of step {changed}: return tensors of its own")


def draws_each_worker_alone(case: TaskCase) -> None:
    """A worker's minibatch does not depend on the other workers in the call, nor on their order."""
    task = case.build()
    for workers in ([2], [3, 1], [1, 2, 3]):
        fresh = case.build()
        for step in range(STEPS):
            single, together = fresh.batch(step, workers), task.batch(step, range(WORKERS))
            for row, worker in enumerate(workers):
                off = _difference(_row(single, row), _row(together, worker))
                require(
                    not off,
                    f"{case.name}: worker {worker}'s minibatch at step {step} depends on who is hosted beside it "
                    f"({off} in the batch of workers {workers}): draw each worker's samples from its own id",
                )


def starts_from_one_model(case: TaskCase) -> None:
    """Every call of `model` gives a new model with the same parameters, whatever the state of global generators."""
    task = case.build()
    one = task.model()
    before = {name: value.clone() for name, value in one.state_dict().items()}
    with scrambled():
        others = {"a second call": task.model(), "a fresh task": case.build().model()}
    advice = "seed its initialisation, inside torch.random.fork_rng(), from the task's seed"
    for which, other in others.items():
        state = other.state_dict()
        wrong = [name for name, value in before.items() if name not in state or not torch.equal(value, state[name])]
        require(not wrong, f"{case.name}: model() of {which} differs in {wrong[:1]}: {advice}")
        require(other is not one, f"{case.name}: model() gives the same object twice: make a new one at every call")


def has_a_loss(case: TaskCase) -> None:
    """A finite scalar with a gradient, for each worker's own minibatch."""
    task = case.build()
    model, batch = task.model(), task.batch(0, range(WORKERS))
    for worker in range(WORKERS):
        loss: Any = task.loss(model, *_row(batch, worker))
        require(isinstance(loss, Tensor), f"{case.name}: loss() gives a {type(loss).__name__}: return a scalar tensor")
        require(
            loss.shape == (), f"{case.name}: loss() has shape {tuple(loss.shape)}: return the mean of the minibatch"
        )
        start = float(loss.detach())
        require(math.isfinite(start), f"{case.name}: loss() of worker {worker} is {start} at the start")
        require(loss.requires_grad, f"{case.name}: loss() has no gradient: compute it from the model, without no_grad")
        loss.backward()
    moved = [name for name, p in model.named_parameters() if p.grad is not None and bool((p.grad != 0).any())]
    require(bool(moved), f"{case.name}: the gradient of loss() is 0 in every parameter: is the model used?")


def evaluates(case: TaskCase) -> None:
    """`evaluate` gives train_loss and other finite numbers, the same twice, and leaves the model as it was."""
    task = case.build()
    model = task.model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    row, again, tested = task.evaluate(model), task.evaluate(model), task.test(model)
    require("train_loss" in row, f"{case.name}: evaluate() gives {sorted(row)}: train_loss is missing")
    for name, value in {**row, **tested}.items():
        require(
            isinstance(value, (int, float)) and math.isfinite(value),
            f"{case.name}: {name} is {value!r} at the start: return a finite float",
        )
    require(row == again, f"{case.name}: evaluate() twice gives {row} and {again}: measure the same data every time")
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    require(not changed, f"{case.name}: evaluate() changes {changed}: measure with model.eval() and no_grad")


def trains(case: TaskCase) -> None:
    """Three steps of parallel SGD end in a finite loss."""
    task = case.build()
    strategy = methods.psgd(partial(torch.optim.SGD, lr=1e-3))
    summary = train(task, strategy, Communicator(workers=WORKERS, seed=3), RunSettings(steps=STEPS))
    require(
        summary["state"] == "done",
        f"{case.name}: {STEPS} steps of parallel SGD with learning rate 0.001 end {summary['state']}: {summary}",
    )


LAWS: tuple[Callable[[TaskCase], None], ...] = (
    has_what_a_run_asks_for,
    draws_batches_by_the_step,
    draws_each_worker_alone,
    starts_from_one_model,
    has_a_loss,
    evaluates,
    trains,
)

# Laws that say nothing where another is broken.
BASES = {
    has_what_a_run_asks_for: LAWS[1:],
    draws_batches_by_the_step: (draws_each_worker_alone,),
    has_a_loss: (trains,),
    evaluates: (trains,),
}


def check(kind: Callable[..., Task]) -> None:
    """All laws, one after the other.

    >>> from commeff.experiments.tasks import Quadratic
    >>> check(Quadratic)
    """
    for case in cases(kind):
        for law in LAWS:
            law(case)


@contextmanager
def scrambled() -> Iterator[None]:
    """Global generators in another state than they were, and afterwards back in that."""
    state = np.random.get_state()  # noqa: NPY002 - what a task may wrongly draw from
    with torch.random.fork_rng():
        torch.manual_seed(987)
        np.random.seed(987)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002


def _row(batch: Sequence[Tensor], row: int) -> tuple[Tensor, ...]:
    return tuple(part[row] for part in batch)


def _difference(batch: Sequence[Tensor], other: Sequence[Tensor]) -> str:
    """The part that differs, and by how much; '' if none does."""
    if len(batch) != len(other):
        return f"{len(batch)} parts and {len(other)}"
    for number, (part, like) in enumerate(zip(batch, other, strict=True)):
        if part.shape != like.shape or part.dtype != like.dtype:
            return f"part {number}: {tuple(part.shape)} {part.dtype} and {tuple(like.shape)} {like.dtype}"
        if not torch.equal(part, like):
            return f"part {number} differs in {int((part != like).sum())} of {part.numel()} numbers"
    return ""
