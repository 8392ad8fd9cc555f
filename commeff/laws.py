"""What must hold of every method, built in or the reader's own: `check(method)` runs all of it on a small problem.

A law is a function of `Case` that raises `AssertionError` with a sentence. The problem: 4 workers, each with its own
quadratic in 12 coordinates (a 3 x 3 matrix and a vector), float64.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

import topologies
from commeff.communicator import Communicator
from commeff.strategy import Strategy
from commeff.transforms import blocked
from compressors import Compressor, Layout, ScaledSign, TopK
from topologies import Topology

WORKERS, STEPS = 4, 6
LAYOUT = Layout.of([("matrix", (3, 3)), ("vector", (3,))])

Method = Callable[..., Strategy]


@dataclass(frozen=True)
class Case:
    """A method with arguments that suit the problem: `build(n)` gives a fresh strategy for n workers."""

    name: str
    build: Callable[[int], Strategy]


def cases(method: Method) -> Iterator[Case]:
    """The method with small arguments for what it requires, once for every choice of its `Literal` parameters and two
    compressors.
    """
    hints = get_type_hints(method)
    optimizer = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
    axes: dict[str, list[Any]] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        hint = hints.get(name)
        if name == "optimizer":
            axes[name] = [optimizer]
        elif hint is Compressor:
            axes[name] = [TopK(ratio=0.25), ScaledSign()]
        elif hint is Topology:
            axes[name] = [None]
        elif get_origin(hint) is Literal:
            axes[name] = list(get_args(hint))
        elif name in ("period", "rounds", "rank"):
            axes[name] = [2 if name != "rank" else 1]
        elif parameter.default is parameter.empty:
            raise TypeError(f"{method.__name__} requires {name!r}, for which the laws know no value: give it a default")
    for values in itertools.product(*axes.values()):
        arguments = dict(zip(axes, values, strict=True))
        shown = [
            v if isinstance(v, str) else type(v).__name__
            for k, v in arguments.items()
            if k not in ("optimizer", "topology") and not isinstance(v, int)
        ]
        yield Case(f"{method.__name__}({', '.join(shown)})", partial(_build, method, arguments))


def _build(method: Method, arguments: dict[str, Any], n: int) -> Strategy:
    filled = {
        name: topologies.lazy(topologies.ring(n)) if name == "topology" else value for name, value in arguments.items()
    }
    return method(**filled)


def start(n: int = WORKERS, d: int = LAYOUT.d, device: str = "cpu") -> Tensor:
    """Equal rows that are not zero."""
    return torch.linspace(-1, 2, d, dtype=torch.float64, device=device).expand(n, d).clone()


def slope(x: Tensor, step: int, workers: Any = range(WORKERS)) -> Tensor:
    """Gradients of f_i(x) = |sqrt(a_i) (x - b_i)|^2 / 2, shaken by a sine of the step."""
    ids = torch.tensor(list(workers), dtype=x.dtype, device=x.device)[:, None]
    columns = torch.arange(x.shape[1], dtype=x.dtype, device=x.device)
    return (1 + 0.3 * ids + 0.05 * columns) * (x - torch.sin(ids * 1.7 + columns)) + 0.1 * torch.cos(
        3 * columns + 7 * step + ids
    )


def run(
    strategy: Strategy,
    steps: int = STEPS,
    n: int = WORKERS,
    communicator: Communicator | None = None,
    donate: bool = False,
    push: float = 0.0,
    device: str = "cpu",
) -> tuple[Tensor, Communicator]:
    """Drive a strategy; gives the trajectory (steps, w, d) and the communicator. `push` is added to worker 0's first
    gradient.
    """
    communicator = communicator or Communicator(workers=n, seed=3)
    x = start(n, device=device)[list(communicator.workers)]
    strategy.start(x, LAYOUT, communicator)
    trajectory = []
    for communicator.step in range(steps):
        gradient = slope(x, communicator.step, communicator.workers)
        if 0 in communicator.workers and communicator.step == 0:
            gradient[0] += push
        strategy.post(x, communicator)
        x = strategy.step(x, gradient, communicator, donate=donate)
        trajectory.append(x.clone())
    return torch.stack(trajectory), communicator


def repeats(case: Case) -> None:
    """Equal seeds give equal runs, also when one strategy object is started again."""
    strategy = case.build(WORKERS)
    first, again = run(strategy)[0], run(strategy)[0]
    assert torch.equal(first, again), f"{case.name}: started twice, it ran differently; allocate all memory in start"
    assert torch.isfinite(first).all(), f"{case.name}: the run on a mild quadratic is not finite"


def leaves_its_input_alone(case: Case) -> None:
    """step writes into neither x nor the gradient, and never touches a result again."""
    strategy, communicator, x = case.build(WORKERS), Communicator(workers=WORKERS, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    kept: list[tuple[Tensor, Tensor]] = [(x, x.clone())]
    for communicator.step in range(STEPS):
        gradient = slope(x, communicator.step)
        kept.append((gradient, gradient.clone()))
        x = strategy.step(x, gradient, communicator)
        kept.append((x, x.clone()))
    changed = [i for i, (given, copy) in enumerate(kept) if not torch.equal(given, copy)]
    assert not changed, (
        f"{case.name}: step wrote into what it was given or had returned (tensors {changed} of x, g, x, g, x, ...)"
    )


def gives_the_same_when_x_is_donated(case: Case) -> None:
    """Working in place changes nothing but memory."""
    plain, given = run(case.build(WORKERS))[0], run(case.build(WORKERS), donate=True)[0]
    assert torch.equal(plain, given), (
        f"{case.name}: with donate=True the trajectory differs by {(plain - given).abs().max():.1e}"
    )


def resumes(case: Case) -> None:
    """Saved after any step and loaded into a fresh strategy, it goes on bit by bit."""
    whole, _ = run(case.build(WORKERS))
    for stop in range(1, STEPS):
        strategy = case.build(WORKERS)
        part, _ = run(strategy, steps=stop)
        state, x = strategy.state_dict(), part[-1].clone()
        fresh, later = case.build(WORKERS), Communicator(workers=WORKERS, seed=3)
        fresh.start(start(), LAYOUT, later)
        fresh.load_state_dict(state)
        for later.step in range(stop, STEPS):
            x = fresh.step(x, slope(x, later.step), later)
            assert torch.equal(x, whole[later.step]), (
                f"{case.name}: resumed after step {stop}, it differs at step {later.step}"
            )


def stays_where_all_agree(case: Case) -> None:
    """With equal rows and zero gradients nobody moves."""
    strategy, communicator, x = case.build(WORKERS), Communicator(workers=WORKERS, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    for communicator.step in range(STEPS):
        x = strategy.step(x, torch.zeros_like(x), communicator)
    moved = (x - start()).abs().max()
    assert moved <= 1e-12, f"{case.name}: equal workers with zero gradients moved by {moved:.1e}"


def pays_for_what_it_learns(case: Case) -> None:
    """A worker that feels another's gradient has been sent bytes: information reaches others through the communicator
    only.
    """
    plain, communicator = run(case.build(WORKERS))
    pushed, _ = run(case.build(WORKERS), push=0.5)
    felt = (plain - pushed)[:, 1:].abs().amax(dim=(1, 2))
    sent = torch.zeros(STEPS, dtype=torch.float64)
    for row in communicator.ledger.rows:
        sent[row.step] += row.wire_bytes
    free = [k for k in range(STEPS) if felt[k] > 0 and sent[: k + 1].sum() == 0]
    assert not free, f"{case.name}: other workers felt worker 0's gradient at step {free[0]} before any byte was sent"
    total = sum(row.payload_bytes for row in communicator.ledger.rows)
    assert total == communicator.ledger.payload_bytes, f"{case.name}: the ledger's rows do not add up to its total"


def runs_alone(case: Case) -> None:
    """One worker is a run like any other, and puts nothing on the wire that an all-reduce or a graph would carry."""
    trajectory, communicator = run(case.build(1), n=1)
    assert torch.isfinite(trajectory).all(), f"{case.name}: a single worker's run is not finite"
    carried = sum(row.wire_bytes for row in communicator.ledger.rows if row.kind in ("all_reduce", "all_gather", "mix"))
    assert carried == 0, f"{case.name}: a single worker sent {carried} bytes to nobody"


def works_in_blocks(case: Case) -> None:
    """Any partition that respects the scope gives the same trajectory; a finer one is refused."""
    scopes = [case.build(WORKERS).gradients.scope, case.build(WORKERS).parameters.scope]
    edge, inside = LAYOUT.fields[1].start, LAYOUT.fields[1].start - 2
    partitions = {(edge,): {"coordinate", "tensor"}, (inside,): {"coordinate"}, (1, 2, edge, edge + 1): {"coordinate"}}
    whole = run(case.build(WORKERS))[0]
    for cuts, allowed in partitions.items():
        strategy = blocked(case.build(WORKERS), cuts)
        if set(scopes) <= allowed:
            difference = (run(strategy)[0] - whole).abs().max()
            assert difference <= 1e-12, (
                f"{case.name}: in blocks cut at {cuts} the trajectory differs by {difference:.1e}"
            )
            continue
        try:
            run(strategy)
        except ValueError:
            continue
        raise AssertionError(f"{case.name}: of scopes {scopes}, it accepted blocks cut at {cuts}")


LAWS: tuple[Callable[[Case], None], ...] = (
    repeats,
    leaves_its_input_alone,
    gives_the_same_when_x_is_donated,
    resumes,
    stays_where_all_agree,
    pays_for_what_it_learns,
    runs_alone,
    works_in_blocks,
)


def check(method: Method) -> list[str]:
    """Run every law on a method function; gives the names of the laws that hold, raises AssertionError at the first
    that does not.
    """
    passed = []
    for case in cases(method):
        for law in LAWS:
            law(case)
            passed.append(f"{case.name} {law.__name__}")
    return passed
