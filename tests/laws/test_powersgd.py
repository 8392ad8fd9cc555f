"""The batched PowerSGD is the plain one: results, memory and bytes, on every engine."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import Communicator, Layout, Local, Strategy
from commeff.transforms import BatchedPowerSGD, PowerSGD
from tests.laws.processes import on_processes

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.5)
LAYOUTS = {
    "alike": Layout.of([("a", (6, 5)), ("b", (6, 5)), ("c", (5,)), ("d", (6, 5))]),
    "many shapes": Layout.of([("conv", (4, 3, 2, 2)), ("bias", (4,)), ("tall", (9, 4)), ("wide", (4, 9)), ("one", ())]),
    "only vectors": Layout.of([("a", (3,)), ("b", (2, 2))]),
    "only matrices": Layout.of([("a", (7, 8))]),
}
STEPS, N = 6, 4


def run(kind: type[PowerSGD], rank: int, layout: Layout, communicator: Communicator) -> tuple[torch.Tensor, Strategy]:
    """The rows of this process after the last step."""
    strategy = Strategy(Local(SGD), gradients=kind(rank))
    workers = torch.tensor(list(communicator.workers), dtype=torch.float64)[:, None]
    columns = torch.arange(layout.d, dtype=torch.float64)
    x = torch.zeros(len(workers), layout.d, dtype=torch.float64)
    strategy.start(x, layout, communicator)
    for communicator.step in range(STEPS):
        gradient = x - torch.sin(3 * columns * (workers + 1) + columns**2 % 7) + torch.cos(columns * communicator.step)
        x = strategy.step(x, gradient, communicator)
    return x, strategy


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_batched_one_is_the_plain_one(name: str, rank: int) -> None:
    plain_world, batched_world = Communicator(workers=N, seed=1), Communicator(workers=N, seed=1)
    x, plain = run(PowerSGD, rank, LAYOUTS[name], plain_world)
    y, batched = run(BatchedPowerSGD, rank, LAYOUTS[name], batched_world)
    assert x.abs().max() > 0.1
    torch.testing.assert_close(x, y, rtol=0, atol=1e-12)
    saved, other = plain.state_dict(), batched.state_dict()
    assert saved.keys() == other.keys()
    assert any(memory.startswith("gradients/right/") for memory in saved) == (name != "only vectors")
    for memory in (memory for memory in saved if memory.startswith("gradients/")):
        torch.testing.assert_close(saved[memory], other[memory], rtol=0, atol=1e-12)
    assert plain_world.ledger.payload_bytes == batched_world.ledger.payload_bytes > 0
    assert batched_world.ledger.messages <= min(2 * STEPS, plain_world.ledger.messages)
    batched.load_state_dict(plain.state_dict())


@pytest.mark.parametrize("kind", [PowerSGD, BatchedPowerSGD])
def test_both_are_the_same_on_processes(kind: type[PowerSGD]) -> None:
    layout = LAYOUTS["many shapes"]
    expected, _ = run(PowerSGD, 2, layout, Communicator(workers=N, seed=1))

    def share() -> torch.Tensor:
        return run(kind, 2, layout, Communicator(workers=N, seed=1, distributed=True))[0]

    torch.testing.assert_close(torch.cat(on_processes(2, share)), expected, rtol=0, atol=1e-12)


def test_in_32_bits_a_run_goes_on_bit_for_bit() -> None:
    """Rounding depends on where in memory a factor begins, which a restart must not change."""
    layout = Layout.of([("a", (16, 1, 3, 3)), ("b", (16,)), ("c", (32, 16, 3, 3)), ("d", (10, 32))])

    def begun() -> tuple[Strategy, Communicator]:
        strategy, communicator = Strategy(Local(SGD), gradients=BatchedPowerSGD(2)), Communicator(workers=2)
        strategy.start(torch.zeros(2, layout.d), layout, communicator)
        return strategy, communicator

    first, again, x, gradients = (
        begun(),
        begun(),
        torch.zeros(2, layout.d),
        torch.randn(6, 2, layout.d, generator=torch.Generator().manual_seed(0)),
    )
    for step in range(6):
        if step == 3:
            again[0].load_state_dict(first[0].state_dict())
            y = x.clone()
        first[1].step = again[1].step = step
        x = first[0].step(x, gradients[step], first[1])
        if step >= 3:
            y = again[0].step(y, gradients[step], again[1])
    assert torch.equal(x, y)
