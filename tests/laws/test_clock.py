"""What the clock of a run counts: a step lasts until it is over at every process.

The clock is a number that both processes share; only process 1, which is late, moves it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from commeff import Communicator, methods
from commeff.communicator.wire.transport import Transport
from commeff.experiments.tasks.quadratic import Quadratic
from commeff.training.settings import RunSettings
from commeff.training.stop_vote import StopVote
from commeff.training.trainer import train
from tests.laws.processes import on_processes
from tests.owned import until

STEPS, EVERY, LATE = 12, 3, 1.0
SGD = partial(torch.optim.SGD, lr=0.1)


class Late(Quadratic):
    """Process 1 takes its time, in steps and, ten times as much, in evaluations.

    Its steps take time once process 0 waits for them.
    """

    def __init__(self, shared: torch.Tensor) -> None:
        super().__init__(workers=2)
        self.shared = shared  # the time; the step of process 0; whether it waits in it

    def batch(self, step: int, workers: Sequence[int]) -> Any:
        if dist.get_rank() == 0:
            self.shared[1:] = torch.tensor([step, 0])
        elif (step + 1) % EVERY == 0:
            until(lambda: self.shared[1:].tolist() == [step, 1], "process 0")
            self.shared[0] += EVERY * LATE
        return super().batch(step, workers)

    def evaluate(self, model: torch.nn.Module) -> dict[str, float]:
        if dist.get_rank() == 1:
            self.shared[0] += 10 * LATE
        return super().evaluate(model)


def seconds(shared: torch.Tensor) -> tuple[float, float]:
    found = train(
        Late(shared), methods.local_sgd(SGD, 100), Communicator(), RunSettings(steps=STEPS, evaluate_every=EVERY)
    )
    return found["seconds"], found["exposed_seconds"]


def test_who_waits_for_a_slow_process_counts_it_and_not_its_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, timed = torch.zeros(3, dtype=torch.float64).share_memory_(), Transport._timed

    def noticed(transport: Transport, wait: Callable[[], Any]) -> None:
        def waiting() -> None:
            if dist.get_rank() == 0:
                shared[2] = 1
            wait()

        timed(transport, waiting)

    monkeypatch.setattr(Transport, "_timed", noticed)
    monkeypatch.setattr(StopVote, "passed", lambda vote, requested: False)
    monkeypatch.setattr(time, "perf_counter", lambda: float(shared[0]))
    (fast, waited), (slow, _) = on_processes(2, partial(seconds, shared))
    assert fast == waited == slow == STEPS * LATE


def test_what_a_device_has_not_computed_yet_when_the_host_is_through_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: late[0])
    monkeypatch.setattr(torch.cpu, "synchronize", lambda: late.append(late.pop() + EVERY * LATE))
    settings = RunSettings(steps=STEPS, evaluate_every=EVERY)
    found = train(Quadratic(workers=2), methods.local_sgd(SGD, 100), Communicator(workers=2), settings)
    assert found["seconds"] == STEPS * LATE
