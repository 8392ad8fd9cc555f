"""Who takes part: a step without some workers is a step of the others, and touches nothing of theirs.

A worker that returns is given what another has, so what a method says that all have in common has to be.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.core.addresses import Address
from commeff.core.components import AgreesByStep
from commeff.core.presence import absence_faults
from commeff.core.state import walk
from commeff.core.strategy import Strategy, Transform
from commeff.laws.engines import rehearse
from commeff.laws.order import order_of_sums
from commeff.laws.problem import LAYOUT, LONG, WORKERS, MethodCase, elsewhere, falling, slope, start
from commeff.training.returning import RowReader, exchange_common

PRESENT = ("1111", "1011", "1001", "0000", "0111", "1111", "1101")  # who is there, step by step


def leaves_the_absent_alone(case: MethodCase) -> None:
    """Absent workers neither move nor remember, send or receive, whatever their gradients are; who hosts them does not
    show. A method that cannot do without them says so.
    """
    strategy = case.build(WORKERS)
    strategy.start(start(), LAYOUT, Communicator(workers=WORKERS))
    if any(absence_faults(strategy)):
        refusals = []
        try:
            _drive(case, Communicator(workers=WORKERS, seed=3))
        except ValueError as error:
            refusals.append(str(error))
        assert refusals, f"{case.name}: it needs every worker, and went on without some"
        assert "must take part" in refusals[0], f"{case.name}: it is refused for another reason: {refusals[0]}"
        return
    whole, bill = _drive(case, Communicator(workers=WORKERS, seed=3))
    for processes in (2, WORKERS):
        results = rehearse(processes, WORKERS, lambda communicator: _drive(case, communicator))
        difference = float((torch.cat([rows for rows, _ in results], 1) - whole).abs().max())
        assert difference <= 1e-12, (
            f"{case.name}: with absent workers it differs by {difference:.1e} on {processes} processes: "
            + (
                order_of_sums(case, difference)
                or "a process may host nobody who is there, and what is a mean over all workers has to be multiplied "
                "by communicator.n / communicator.context.n"
            )
        )
        assert all(bills == bill for _, bills in results), f"{case.name}: absent workers are billed on some processes"


def _drive(case: MethodCase, communicator: Communicator) -> tuple[Tensor, list[float]]:
    """The trajectory (steps, w, d), and what each step sends."""
    strategy, workers = case.build(WORKERS), list(communicator.workers)
    x, trajectory, bills = start()[workers], [], []
    strategy.start(x, LAYOUT, communicator)
    for step, letters in enumerate(PRESENT):
        communicator.begin(step, present=torch.tensor([letter == "1" for letter in letters]))
        absent = torch.tensor([letters[worker] == "0" for worker in workers])
        gradients = _poisoned(elsewhere(step, workers), absent)
        communicator.context.losses = falling(communicator).masked_fill(absent, torch.nan)
        before, remembered = x.clone(), _memories(strategy, absent)
        sent = communicator.ledger.payload_bytes
        x = strategy.step(x, gradients(x), communicator, gradients)
        assert torch.isfinite(x).all(), f"{case.name}: a gradient of a worker who is absent reached others"
        assert torch.equal(x[absent], before[absent]), f"{case.name}: a worker moved in a step from which it was absent"
        after = _memories(strategy, absent)
        for name, was in remembered.items():
            assert torch.equal(after[name], was), (
                f"{case.name}: {name} of an absent worker changed: a local step keeps its rows, as `kept` does"
            )
        trajectory.append(x.clone())
        bills.append(communicator.ledger.payload_bytes - sent)
    assert bills[PRESENT.index("0000")] == 0, f"{case.name}: a step without anybody sent bytes"
    return torch.stack(trajectory), bills


def _poisoned(gradients: Callable[[Tensor], Tensor], absent: Tensor) -> Callable[[Tensor], Tensor]:
    """The gradients, which are no numbers for absent workers."""
    return lambda x: torch.where(absent[:, None], torch.nan, gradients(x))


def _memories(strategy: Strategy, workers: Tensor) -> dict[str, Tensor]:
    """What a strategy remembers of some of the hosted workers, (w,) bool: their rows of each memory, by its path."""
    strategy.drain()
    strategy.exchange(Address.of(LAYOUT.d), reader := RowReader(workers))
    return reader.values


def agrees_where_it_says_so(case: MethodCase) -> None:
    """After a step of which `agrees` is true, rows and common memories are equal at all workers."""
    strategy, communicator, x = case.build(WORKERS), Communicator(workers=WORKERS, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    for _, part in walk(strategy):
        for name in part.traits.common:
            kind = type(part).__name__
            assert hasattr(part, name), f"{case.name}: Traits(common=) of {kind} names {name}, which it does not have"
            counts = isinstance(part, AgreesByStep) or (isinstance(part, Transform) and part.traits.agrees)
            assert counts, (
                f"{case.name}: Traits(common=) of {kind} is for a transform with agrees=True: leave {name} out of it"
            )
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
        for key, rows in reader.values.items():
            _require_equal(case, communicator.step, key.split()[0], rows, "leave it out of Traits(common=)")


def _require_equal(case: MethodCase, step: int, name: str, rows: Tensor, remedy: str) -> None:
    differing = float((rows.double() - rows[:1].double()).abs().max()) if rows.numel() else 0.0
    assert differing <= 1e-12, (
        f"{case.name}: its parts say that {name} is equal at all workers after step {step}, where workers differ by "
        f"{differing:.1e}: {remedy}"
    )
