"""The problem on which methods are tried, the arguments they get, and the loop that drives them."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from commeff import topologies
from commeff.communicator import Communicator
from commeff.compressors import Compressor, Layout, Natural, RandomK, ScaledSign, TopK
from commeff.core import overlap
from commeff.core.factories import OptimizerFactory
from commeff.core.strategy import Component, Stateful, Strategy
from commeff.topologies import Topology
from commeff.transforms import Doubling, Thinning

WORKERS, STEPS = 4, 6
LONG = 12  # steps that hold a period and a half of the longest default, 8
LAYOUT = Layout.of([("matrix", (3, 3)), ("vector", (3,))])

SMALL: dict[str, Any] = {"period": 2, "rounds": 2, "rank": 1, "k": 2, "chunk": 3, "ratio": 0.25, "warmup": 2}
SMALL |= {"probability": 0.5, "updates": Thinning(3, 2), "meetings": Doubling(2)}  # shows all in few steps
MOMENTUM = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
PLAIN = partial(torch.optim.SGD, lr=0.05)  # for methods that refuse it
LARGE = RandomK(ratio=0.25, shared=True)  # unbiased, with omega = 3: an error that is fed back through it grows
BIASED, UNBIASED = (TopK(ratio=0.25), ScaledSign(), LARGE), (Natural(), LARGE)

Method = Callable[..., Strategy]


@dataclass(frozen=True)
class MethodCase:
    """A method with arguments that suit the problem: `build(n)` gives a fresh strategy for n workers."""

    name: str
    build: Callable[[int], Strategy]


@dataclass(frozen=True)
class OfWorkers:
    """An argument that depends on the number of workers."""

    make: Callable[[int], Any]


@cache
def lazy_ring(n: int) -> Topology:
    """A graph that every gossip method takes."""
    return topologies.lazy(topologies.ring(n))


def cases(method: Method) -> Iterator[MethodCase]:
    """The method with small arguments for what it requires, once for every choice of its `Literal` parameters and three
    compressors; unbiased ones, if it refuses those.
    """
    try:
        yield from list(_cases(method, BIASED))
    except ValueError:
        yield from _cases(method, UNBIASED)


def _cases(method: Method, compressors: Sequence[Compressor]) -> Iterator[MethodCase]:
    hints = get_type_hints(method)
    axes, unknown = dict[str, list[Any]](), list[str]()
    for name, parameter in inspect.signature(method).parameters.items():
        hint = hints.get(name)
        if name == "optimizer":
            axes[name] = [MOMENTUM]
        elif hint == OptimizerFactory and parameter.default is parameter.empty:
            axes[name] = [PLAIN]
        elif hint is Compressor:
            axes[name] = list(compressors)
        elif hint is Topology:
            axes[name] = [OfWorkers(lazy_ring)]
        elif name in ("n", "workers") and parameter.default is parameter.empty:
            axes[name] = [OfWorkers(int)]
        elif get_origin(hint) is Literal:
            axes[name] = list(get_args(hint))
        elif name in SMALL:
            axes[name] = [SMALL[name]]
        elif parameter.default is parameter.empty:
            unknown.append(name)
    assert not unknown, (
        f"{method.__name__} must have defaults for {', '.join(unknown)}, got none: the laws know values for optimizer, "
        f"compressor, topology, n and {', '.join(SMALL)} alone"
    )
    for values in itertools.product(*axes.values()):
        arguments = dict(zip(axes, values, strict=True))
        words = [
            v if isinstance(v, str) else type(v).__name__
            for k, v in arguments.items()
            if not isinstance(v, (int, float, OfWorkers, partial))
        ]
        case = MethodCase(f"{method.__name__}({', '.join(words)})", partial(_build, method, arguments))
        try:
            require_start(case)
        except ValueError:
            if "optimizer" not in arguments:
                raise
            arguments |= {"optimizer": PLAIN}  # some refuse momentum; what else is wrong is refused again
            require_start(case)
        yield case


def require_start(case: MethodCase) -> None:
    """Refuse what is no strategy, or does not start, with all its parts."""
    strategy: object = case.build(WORKERS)
    assert isinstance(strategy, Strategy), (
        f"{case.name} gives a {type(strategy).__name__}: return Strategy(local, gradients=..., parameters=...)"
    )
    inside, started = [*_components(strategy)], set[int]()
    for _, _, part in inside:

        def begin(*args: Any, part: Component = part, start: Callable[..., None] = part.start) -> None:
            started.add(id(part))
            start(*args)

        vars(part)["start"] = begin
    strategy.start(start(), LAYOUT, Communicator(workers=WORKERS))
    for owner, name, part in inside:
        assert id(part) in started, (
            f"{case.name}: {owner}.start has not started {name} ({type(part).__name__}): let it begin with "
            "super().start(v, layout, communicator)"
        )


def _components(part: Stateful) -> Iterator[tuple[str, str, Component]]:
    """The transforms and encoders inside, with the class and the attribute that have them."""
    for name, inner in part.parts():
        if isinstance(inner, Component):
            yield type(part).__name__, name, inner
        yield from _components(inner)


def _build(method: Method, arguments: dict[str, Any], n: int) -> Strategy:
    return method(**{name: v.make(n) if isinstance(v, OfWorkers) else v for name, v in arguments.items()})


def start(n: int = WORKERS, d: int = LAYOUT.d, device: str = "cpu") -> Tensor:
    """Equal rows that are not zero."""
    return torch.linspace(-1, 2, d, dtype=torch.float64, device=device).expand(n, d).clone()


def slope(x: Tensor, step: int, workers: Any = range(WORKERS), columns: Tensor | None = None) -> Tensor:
    """Gradients of f_i(x) = |sqrt(a_i) (x - b_i)|^2 / 2, shaken by a sine of the step; of some columns, if given."""
    ids = torch.tensor(list(workers), dtype=x.dtype, device=x.device)[:, None]
    columns = torch.arange(x.shape[1], device=x.device) if columns is None else columns
    columns = columns.to(x.dtype)
    return (1 + 0.3 * ids + 0.05 * columns) * (x - torch.sin(ids * 1.7 + columns)) + 0.1 * torch.cos(
        3 * columns + 7 * step + ids
    )


def falling(communicator: Communicator) -> Tensor:
    """Losses of the hosted workers that fall with the step; their mean over all is the same on every engine."""
    ids = torch.tensor(list(communicator.workers), dtype=torch.float64)
    return (2 + 0.1 * ids) * 0.8**communicator.step


def elsewhere(step: int, workers: Any = range(WORKERS), columns: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """The gradients of a step as a function of x: what a driver offers as its oracle."""
    return lambda x: slope(x, step, workers, columns)


def run(
    strategy: Strategy,
    steps: int = STEPS,
    n: int = WORKERS,
    communicator: Communicator | None = None,
    donate: bool = False,
    push: float = 0.0,
    device: str = "cpu",
    early: bool = False,
    layout: Layout = LAYOUT,
) -> tuple[Tensor, Communicator]:
    """Drive a strategy; gives the trajectory (steps, w, d) and the communicator, whose ledger has every row. `push` is
    added to worker 0's first gradient. `early` says of each tensor when its gradient is ready, from the last to the
    first.
    """
    communicator = communicator or Communicator(workers=n, seed=3)
    communicator.ledger.record()
    x = start(n, layout.d, device)[list(communicator.workers)]
    strategy.start(x, layout, communicator)
    trajectory = []
    for communicator.step in range(steps):
        gradient = slope(x, communicator.step, communicator.workers)
        communicator.context.losses = falling(communicator)
        if 0 in communicator.workers and communicator.step == 0:
            gradient[0] += push
        strategy.post(x, communicator)
        for field in reversed(layout.fields) if early else ():
            overlap.ready(strategy, gradient, field.start, field.stop, communicator)
        oracle = elsewhere(communicator.step, communicator.workers)
        x = strategy.step(x, gradient, communicator, oracle, donate=donate)
        trajectory.append(x.clone())
    return torch.stack(trajectory), communicator


@lru_cache(maxsize=1)
def plain_run(case: MethodCase) -> tuple[Tensor, Communicator]:
    """`run` of a fresh strategy, for the laws that compare with it: the laws of a case come one after another."""
    return run(case.build(WORKERS))
