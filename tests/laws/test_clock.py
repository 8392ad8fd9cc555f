"""What the clock of a run counts: a step lasts until it is over at every process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from commeff import Communicator, methods
from commeff.experiments.tasks.quadratic import Quadratic
from commeff.training.trainer import train
from tests.laws.processes import on_processes

STEPS, LATE = 12, 0.02
SGD = partial(torch.optim.SGD, lr=0.1)


class Late(Quadratic):
    """Process 1 takes its time, in steps and, ten times as much, in evaluations."""

    def batch(self, step: int, workers: Sequence[int]) -> Any:
        time.sleep(LATE * dist.get_rank())
        return super().batch(step, workers)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        time.sleep(10 * LATE * dist.get_rank())
        return super().evaluate(model)


def seconds() -> tuple[float, float]:
    found = train(
        Late(workers=2), methods.local_sgd(SGD, 100), Communicator.per_process(), steps=STEPS, evaluate_every=3
    )
    return found["seconds"], found["exposed_seconds"]


def test_who_waits_for_a_slow_process_counts_it_and_not_its_evaluations() -> None:
    (fast, waited), (slow, _) = on_processes(2, seconds)
    assert fast > 0.9 * STEPS * LATE
    assert waited > 0.8 * STEPS * LATE
    assert abs(fast - slow) < 0.3 * slow
    assert fast < STEPS * LATE + 10 * LATE
