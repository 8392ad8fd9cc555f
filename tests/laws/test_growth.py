"""Memory of long runs: flat over 10,000 steps for every method, and checkpoints as small as after one step."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from commeff import Communicator, Strategy, laws, methods, topologies
from commeff.communicator import Ledger
from commeff.communicator.ledger import CAPACITY
from commeff.experiments.tasks import Quadratic
from commeff.laws.memory import held
from commeff.training.settings import RunSettings
from commeff.training.trainer import train
from tests.laws.test_methods import CASES, CATALOGUE

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
N = laws.WORKERS
LATER = 10_000
REDRAWN = {
    "od_equidyn": lambda: methods.dsgd(SGD, topologies.od_equidyn(N, 0.5, seed=0)),
    "random_matching": lambda: methods.dsgd(SGD, topologies.random_matching(N, seed=0)),
}
FIRST = {case.name.split("(")[0]: partial(case.build, N) for case in reversed(CASES)}  # a case of each method
BUILDS: dict[str, Callable[[], Strategy]] = FIRST | REDRAWN


def sizes(strategy: Strategy, at: tuple[int, ...], measure: Callable[[list[Any]], Any]) -> list[Any]:
    """What is held after each of some numbers of steps."""
    communicator, x, found = Communicator(workers=N, seed=3), laws.start(), []
    communicator.ledger.capacity = 10
    strategy.start(x, laws.LAYOUT, communicator)
    for communicator.step in range(max(at)):
        oracle = partial(laws.slope, step=communicator.step)
        x = strategy.step(x, laws.slope(x, communicator.step), communicator, oracle)
        if communicator.step + 1 in at:
            found.append(measure([strategy, communicator]))
    return found


def test_the_catalogue_is_whole() -> None:
    assert FIRST.keys() == {method.__name__ for method in CATALOGUE}


@pytest.mark.parametrize("name", ["od_equidyn"])
def test_matrices_of_graphs_that_change_are_forgotten(name: str) -> None:
    early, late = sizes(BUILDS[name](), (130, 325), held)  # after multiples of the 65 plans that are kept
    assert late <= 1.01 * early


def test_training_holds_no_more_either() -> None:
    task, strategy, communicator = Quadratic(workers=N), methods.psgd(SGD), Communicator(workers=N)
    communicator.ledger.capacity, found = 10, dict[int, int]()

    def watch(step: int, row: object) -> None:
        if step in (100, 300):
            found[step] = held([task, strategy, communicator, row])

    train(task, strategy, communicator, RunSettings(steps=300, evaluate_every=20), progress=watch)
    assert found[300] <= found[100]


@pytest.fixture
def quiet() -> Iterator[None]:
    """The collector looks at nothing that is there already."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def everywhere(_: list[Any]) -> tuple[int, int]:
    """Blocks of memory that Python holds, whoever refers to them, and bytes of tensors."""
    gc.collect()
    tensors = [item for item in gc.get_objects() if isinstance(item, torch.Tensor)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sys.getallocatedblocks(), sum(storages.values())


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", BUILDS)
def test_memory_is_flat_over_ten_thousand_steps(name: str) -> None:
    (blocks, numbers), (more_blocks, more_numbers) = sizes(BUILDS[name](), (LATER // 5, LATER), everywhere)
    print(f"{name}: {more_blocks - blocks:+} blocks, {more_numbers - numbers:+} bytes of tensors")
    assert more_blocks - blocks < LATER // 10, "caches of a fixed size take some; one object in ten steps is growth"
    assert more_numbers <= numbers


def billed(operations: int) -> Ledger:
    found = Ledger()
    for step in range(operations):
        found.bill(step, "gradients", "all_reduce", 100, 150.5, 1, 1)
    return found


def test_a_ledger_of_many_operations_is_small() -> None:
    few, many = io.BytesIO(), io.BytesIO()
    torch.save(billed(1).state_dict(), few)
    late = billed(100_000)
    torch.save(late.state_dict(), many)
    assert len(many.getvalue()) <= len(few.getvalue()) + 64
    assert CAPACITY <= len(late.rows) <= 2 * CAPACITY
    assert late.rows[-1].step == 99_999
    assert (late.payload_bytes, late.wire_bytes, late.messages, late.rounds) == (10**7, 1505 * 10**4, 10**5, 10**5)


def test_a_ledger_goes_on_from_its_totals_and_records_where_asked() -> None:
    early, later = billed(3), Ledger()
    later.load_state_dict(early.state_dict())
    later.record()
    for step in range(5000):
        later.bill(step, "gradients", "mix", 1, 1, 1, 1)
    assert later.payload_bytes == 300 + 5000
    assert [row.step for row in later.rows] == list(range(5000))
