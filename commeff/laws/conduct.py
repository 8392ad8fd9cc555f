"""How a method behaves: it repeats, leaves what it is given alone, pays for what it learns, works in blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.core.properties import scope_of
from commeff.core.state import walk
from commeff.laws.order import order_of_sums
from commeff.laws.problem import LAYOUT, STEPS, WORKERS, MethodCase, elsewhere, plain_run, run, slope, start
from commeff.transforms import blocked


def repeats(case: MethodCase) -> None:
    """Equal seeds give equal runs, also when one strategy object is started again after another run."""
    strategy, drawn = case.build(WORKERS), torch.get_rng_state()
    first = run(strategy)[0]
    assert torch.equal(drawn, torch.get_rng_state()), (
        f"{case.name}: it draws from torch's global generator, which is another in every process: draw from "
        "communicator.random(purpose)"
    )
    run(strategy, push=0.5)
    again = run(strategy)[0]
    assert torch.equal(first, again), (
        f"{case.name}: started twice, it ran differently, by {float((first - again).abs().max()):.1e}; allocate all "
        "memory in start"
    )
    assert torch.isfinite(first).all(), f"{case.name}: the run on a mild quadratic is not finite; is a sign wrong?"


def leaves_its_input_alone(case: MethodCase) -> None:
    """step writes into neither x nor the gradient, and never touches a result again."""
    strategy, communicator, x = case.build(WORKERS), Communicator(workers=WORKERS, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    copies: list[tuple[str, Tensor, Tensor]] = []
    for communicator.step in range(STEPS):
        gradient = slope(x, communicator.step)
        inputs = {"x": x, "gradient": gradient}
        copies += [(f"the {name} of step {communicator.step}", t, t.clone()) for name, t in inputs.items()]
        x = strategy.step(x, gradient, communicator, elsewhere(communicator.step))
        changed = [name for name, before, copy in copies if not torch.equal(before, copy)]
        assert not changed, (
            f"{case.name}: step {communicator.step} wrote into {changed[0]}: a transform works on a copy, and keeps "
            "a .clone() of what it remembers"
        )


def gives_the_same_when_x_is_donated(case: MethodCase) -> None:
    """Working in place changes nothing but memory."""
    plain, donated = plain_run(case)[0], run(case.build(WORKERS), donate=True)[0]
    assert torch.equal(plain, donated), (
        f"{case.name}: with donate=True the trajectory differs by {float((plain - donated).abs().max()):.1e}: what is "
        "remembered of x must be a .clone()"
    )


def stays_where_all_agree(case: MethodCase) -> None:
    """With equal rows and zero gradients nobody moves, unless the method says why."""
    strategy, communicator, x = case.build(WORKERS), Communicator(workers=WORKERS, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    for communicator.step in range(STEPS):
        x = strategy.step(x, torch.zeros_like(x), communicator, torch.zeros_like)
    moved = float((x - start()).abs().max())
    reasons = (part.traits.moves_at_consensus for _, part in walk(strategy))
    if reason := next(filter(None, reasons), ""):
        assert moved > 1e-12, f"{case.name}: it stays where it is, and says that it moves: {reason}"
        return
    assert moved <= 1e-12, (
        f"{case.name}: equal workers with zero gradients moved by {moved:.1e}: what is mixed must be a difference that "
        "vanishes, or averaged with weights that sum to 1; a part that moves them as published says why in "
        "Traits(moves_at_consensus=)"
    )


def pays_for_what_it_learns(case: MethodCase) -> None:
    """A worker that feels another's gradient has been sent bytes: information reaches others through the communicator
    only.
    """
    plain, communicator = plain_run(case)
    pushed, _ = run(case.build(WORKERS), push=0.5)
    felt = (plain - pushed)[:, 1:].abs().amax(dim=(1, 2))
    wire_bytes = torch.zeros(STEPS, dtype=torch.float64)
    for row in communicator.ledger.rows:
        wire_bytes[row.step] += row.wire_bytes
    free = [k for k in range(STEPS) if felt[k] > 0 and wire_bytes[: k + 1].sum() == 0]
    assert not free, (
        f"{case.name}: other workers felt worker 0's gradient at step {free[0]} before any byte was sent: rows meet in "
        "communicator.average, mix, gather or the server only"
    )
    total = sum(row.payload_bytes for row in communicator.ledger.rows)
    assert total == communicator.ledger.payload_bytes, f"{case.name}: the ledger's rows do not add up to its total"


def runs_alone(case: MethodCase) -> None:
    """One worker is a run like any other, and puts nothing on the wire that an all-reduce or a graph would carry."""
    trajectory, communicator = run(case.build(1), n=1)
    assert torch.isfinite(trajectory).all(), f"{case.name}: a single worker's run is not finite"
    carried = sum(row.wire_bytes for row in communicator.ledger.rows if row.kind in ("all_reduce", "all_gather", "mix"))
    assert carried == 0, f"{case.name}: a single worker sent {carried} bytes to nobody"


def works_in_blocks(case: MethodCase) -> None:
    """Any partition that respects the scope gives the same trajectory; a finer one is refused."""
    scopes = [scope_of(case.build(WORKERS).gradients), scope_of(case.build(WORKERS).parameters)]
    edge, inside = LAYOUT.fields[1].start, LAYOUT.fields[1].start - 2
    partitions = {(edge,): {"coordinate", "tensor"}, (inside,): {"coordinate"}, (1, 2, edge, edge + 1): {"coordinate"}}
    whole = plain_run(case)[0]
    for cuts, allowed in partitions.items():
        strategy = blocked(case.build(WORKERS), cuts)
        if set(scopes) <= allowed:
            difference = float((run(strategy)[0] - whole).abs().max())
            assert difference <= 1e-12, (
                f"{case.name}: in blocks cut at {cuts} the trajectory differs by {difference:.1e}: "
                + (
                    order_of_sums(case, difference)
                    or "it needs more of the vector, say Traits(scope='tensor') or 'whole'"
                )
            )
            continue
        try:
            run(strategy)
        except ValueError:
            continue
        raise AssertionError(f"{case.name}: of scopes {scopes}, it accepted blocks cut at {cuts}")
