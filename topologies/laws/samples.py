"""The topologies on which the laws are tried: a constructor with small arguments for everything that it requires."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import networkx as nx
import numpy as np

from commeff.topologies.dynamic import one_peer_exponential, random_matching
from commeff.topologies.matrix import circulant
from commeff.topologies.static import ring
from commeff.topologies.topology import Topology

SIZES = (8, 5, 2, 1, 3, 4, 12, 13)  # numbers of workers; a topology may refuse some, but not all
FEW = 4  # of these, for what is made of other topologies

SIZED = ("n", "workers", "groups")
VALUES: dict[str, Sequence[Any]] = {  # of parameters without a default, by name
    "seed": (3,),
    "rows": (1, 2, 3, 4),
    "cols": (1, 2, 5),
    "k": (1, 2, 3),
    "m": (3, 5),
    "p": (0.6,),
    "eta": (0.5, 1.0),
    "degree": (0, 1, 3, 4),
    "graph": (nx.lollipop_graph(4, 3), nx.path_graph(5), nx.bull_graph()),
    "matrices": ([circulant(5, {0: 0.5, 1: 0.5}), circulant(5, {0: 0.5, 2: 0.5}), np.eye(5)],),
}


@dataclass(frozen=True)
class TopologyCase:
    """A topology function with arguments: `build()` gives a fresh topology over n workers, or over as many as it likes
    where n is None.
    """

    name: str
    build: Callable[[], Topology]
    n: int | None
    refusals: tuple[str, ...] = ()  # of other arguments: kept by the first case alone


class Made(NamedTuple):
    """A topology to make others of, with what its case is called by."""

    name: str
    topology: Topology


def cases(function: Callable[..., Topology]) -> list[TopologyCase]:
    """The function at several numbers of workers; what it refuses with a ValueError is left out, unless it is all."""
    accepted, refusals = list[TopologyCase](), list[str]()
    for case in _all_cases(function):
        try:
            topology: object = case.build()
        except ValueError as error:
            refusals.append(f"{case.name}: {error}")
            continue
        require(isinstance(topology, Topology), f"{case.name} gives a {type(topology).__name__}: return a Topology")
        accepted.append(case)
    require(bool(accepted), f"{function.__name__} refuses {', '.join(map(str, SIZES))} workers: {refusals[:1]}")
    accepted[0] = replace(accepted[0], refusals=tuple(refusals))
    return accepted


def accepts_all_arguments(case: TopologyCase) -> None:
    """No other arguments are refused with a ValueError. A function may refuse what it cannot connect."""
    count = len(case.refusals)
    require(not count, f"{count} other sets of arguments are refused, such as {'; '.join(case.refusals[:1])}")


def _all_cases(function: Callable[..., Topology]) -> Iterator[TopologyCase]:
    parameters = inspect.signature(function).parameters
    hints = get_type_hints(function, localns={"nx": nx})  # which topologies import only when they draw a graph
    composed = any(hints.get(name) is Topology for name in parameters)
    depends = composed or any(name in SIZED for name in parameters)
    for n in SIZES[: FEW if composed else None] if depends else SIZES[:1]:
        axes = {
            name: axis
            for name, parameter in parameters.items()
            if (axis := _axis(function, parameter, hints.get(name), n)) is not None
        }
        for values in product(*axes.values()):
            chosen = dict(zip(axes, values, strict=True))
            arguments = {name: v.topology if isinstance(v, Made) else v for name, v in chosen.items()}
            words = ", ".join(f"{name}={_format(value)}" for name, value in chosen.items() if name != "seed")
            sized = any(name in ("n", "workers") for name in chosen)
            yield TopologyCase(f"{function.__name__}({words})", partial(function, **arguments), n if sized else None)


def _axis(function: Callable[..., Topology], parameter: inspect.Parameter, hint: Any, n: int) -> Sequence[Any] | None:
    """The values of one parameter; None if its default is kept."""
    choices = _literal(hint)
    if parameter.name in SIZED:
        return (n,)
    if hint is Topology:
        return _topologies(n)
    if choices:
        return choices
    if parameter.default is not parameter.empty and parameter.name != "seed":
        return None
    if parameter.name in VALUES:
        return VALUES[parameter.name]
    raise TypeError(
        f"{function.__name__} requires {parameter.name!r}, for which the laws know no value: give it a default"
    )


def _topologies(n: int) -> tuple[Made, ...]:
    """A fixed, a periodic and an ever-changing topology."""
    return (
        Made(f"ring({n})", ring(n)),
        Made(f"one_peer_exponential({n})", one_peer_exponential(n)),
        Made(f"random_matching({n})", random_matching(n, seed=3)),
    )


def _literal(hint: Any) -> tuple[Any, ...]:
    """The choices of a `Literal`, also of an optional one."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(choice for part in get_args(hint) for choice in _literal(part))
    return get_args(hint) if get_origin(hint) is Literal else ()


def _format(value: Any) -> str:
    return value.name if isinstance(value, Made) else str(value).replace("\n", " ")


def require(condition: bool, complaint: str) -> None:
    """Raise the complaint unless the condition holds."""
    if not condition:
        raise AssertionError(complaint)
