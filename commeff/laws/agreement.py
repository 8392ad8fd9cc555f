"""What all workers have in common: a worker that returns is given what another has, so the claim has to be true."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.core.returning import RowReader, exchange_common
from commeff.laws.problem import LAYOUT, LONG, WORKERS, MethodCase, elsewhere, falling, slope, start


def agrees_where_it_says_so(case: MethodCase) -> None:
    """After a step of which `agrees` is true, rows and common memories are equal at all workers."""
    strategy, communicator, x = case.build(WORKERS), Communicator(workers=WORKERS, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    for communicator.step in range(LONG):
        communicator.context.losses = falling(communicator)
        strategy.post(x, communicator)
        x = strategy.step(x, slope(x, communicator.step), communicator, elsewhere(communicator.step))
        if not strategy.agrees(communicator.step):
            continue
        assert strategy.agrees(), f"{case.name}: agrees(None) must be True, since agrees({communicator.step}) is"
        strategy.drain()
        exchange_common(strategy, LAYOUT.d, reader := RowReader(torch.arange(WORKERS)))
        _require_equal(case, communicator.step, "x", x, "drop Traits(agrees=True), or `agrees` is False of this step")
        for key, rows in reader.found.items():
            _require_equal(case, communicator.step, key.split()[0], rows, "leave it out of Traits(common=)")


def _require_equal(case: MethodCase, step: int, name: str, rows: Tensor, remedy: str) -> None:
    differing = float((rows.double() - rows[:1].double()).abs().max()) if rows.numel() else 0.0
    assert differing <= 1e-12, (
        f"{case.name}: its parts say that {name} is equal at all workers after step {step}, where workers differ by "
        f"{differing:.1e}: {remedy}"
    )
