"""The laws that `commeff check` runs on tasks hold of ours; and processes rehearsed are processes."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist

from commeff import Communicator, Local, Strategy, methods, topologies
from commeff.compressors import TopK
from commeff.experiments.tasks import Digits, Quadratic
from commeff.experiments.tasks.laws import LAWS as TASK_LAWS
from commeff.experiments.tasks.laws import TaskCase as TaskCase
from commeff.laws import WORKERS, is_profiled, run
from commeff.laws.engines import rehearse
from commeff.laws.problem import MethodCase
from commeff.transforms import Delayed, PowerSGD
from tests.laws.processes import on_processes

TASKS = {
    "quadratic": partial(Quadratic, workers=4, sigma=1.0),
    "digits, batch norm": partial(Digits, workers=4, model="cnn", norm="batch", dropout=0.5, batch=4),
}


@pytest.mark.parametrize("name", TASKS)
def test_tasks_keep_the_laws(name: str) -> None:
    for law in TASK_LAWS:
        law(TaskCase(name, TASKS[name]))


def trajectory(communicator: Communicator) -> torch.Tensor:
    optimizer = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
    return torch.stack(
        [
            run(strategy, communicator=communicator)[0]
            for strategy in (
                methods.choco(optimizer, topologies.ring(WORKERS), TopK(k=3)),
                methods.double_squeeze(optimizer, TopK(k=3)),
                methods.mem_sgd(optimizer, TopK(k=3)),
            )
        ]
    )


def test_processes_that_are_rehearsed_do_what_processes_do() -> None:
    real = on_processes(2, lambda: trajectory(Communicator(workers=WORKERS, seed=3, group=dist.group.WORLD)))
    for one, like in zip(rehearse(2, WORKERS, trajectory), real, strict=True):
        assert torch.equal(one, like)


def test_what_is_still_under_way_at_the_end_is_counted() -> None:
    """PowerSGD's second round begins when the first has arrived: of the last step, after it."""

    def build(n: int) -> Strategy:
        return Strategy(Local(partial(torch.optim.SGD, lr=0.05)), gradients=Delayed(PowerSGD(rank=1), 1))

    is_profiled(MethodCase("delayed PowerSGD", build))
