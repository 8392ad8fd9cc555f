"""The laws that `commeff check` runs on topologies and tasks hold of ours; and processes rehearsed are processes."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist

from commeff import Communicator, methods, topologies
from commeff.compressors import TopK
from commeff.experiments.tasks import Digits, Quadratic
from commeff.experiments.tasks.laws import LAWS as TASK_LAWS
from commeff.experiments.tasks.laws import Case as TaskCase
from commeff.laws import WORKERS, run
from commeff.laws.engines import rehearse
from commeff.topologies.laws import check
from tests.laws.processes import on_processes

NAMED = ["complete", "ring", "star", "hypercube", "exponential", "one_peer_exponential", "random_matching", "lazy"]
SIZED = {
    "base_graph": lambda: topologies.base_graph(6, 2),
    "torus": lambda: topologies.torus(2, 3),
    "erdos_renyi": lambda: topologies.erdos_renyi(6, 0.6, seed=3),
    "random_regular": lambda: topologies.random_regular(6, 3, seed=3),
    "d_equistatic": lambda: topologies.d_equistatic(6, 3, seed=3),
    "od_equidyn": lambda: topologies.od_equidyn(6, 0.5, seed=3),
}
TASKS = {
    "quadratic": partial(Quadratic, workers=4, sigma=1.0),
    "digits, batch norm": partial(Digits, workers=4, model="cnn", norm="batch", dropout=0.5, batch=4),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_topologies_keep_the_laws(name: str) -> None:
    check(getattr(topologies, name))


@pytest.mark.parametrize("name", SIZED)
def test_sized_topologies_keep_the_laws(name: str) -> None:
    check(SIZED[name])


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
