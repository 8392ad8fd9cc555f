"""The tensors that a strategy holds on to, by part; and a strategy put back as it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import is_dataclass
from functools import cache
from typing import Any

import numpy as np
from torch import Generator, Tensor
from torch.optim import Optimizer

from commeff.compressors import Compressor, Layout
from commeff.core import Stateful
from commeff.core.state import walk
from commeff.topologies import Topology

PLAIN = (type(None), str, int, float, bool, type, Layout, Topology, Compressor, Stateful)  # no tensors of their own


def measure_memory(strategy: Stateful, borrowed: tuple[Tensor, ...] = ()) -> dict[str, int]:
    """Bytes of the tensors that each part holds between two steps, its own parts counted apart; without empty entries.

    Memory that several attributes share counts once, where it is met first.

    Parameters
    ----------
    strategy : started.
    borrowed : tensors of the driver, such as x, whose memory is not the strategy's.
    """
    places = {tensor.untyped_storage()._cdata for tensor in borrowed}
    sizes: dict[str, int] = {}
    for path, part in walk(strategy):
        total = 0
        for tensor in _tensors(list(vars(part).values())):
            memory = tensor.untyped_storage()
            if memory._cdata not in places:  # what tensors on the same memory have in common, also on meta
                places.add(memory._cdata)
                total += memory.nbytes()
        if total:
            sizes[path] = total
    return sizes


def host_bytes(strategy: Stateful, sizes: Mapping[str, int]) -> int:
    """The bytes of all parts that lie in the host's memory."""
    places = tuple(f"{path}." for path, part in walk(strategy) if part.traits.on_host)
    return sum(size for path, size in sizes.items() if path.startswith(places))


def most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The larger number of each part.

    >>> most({"local": 8}, {"local": 4, "parameters": 2})
    {'local': 8, 'parameters': 2}
    """
    return {part: max(one.get(part, 0), other.get(part, 0)) for part in [*one, *(p for p in other if p not in one)]}


@contextmanager
def preserved(strategy: Stateful) -> Iterator[None]:
    """The strategy may be started and played inside; afterwards it holds what it held before."""
    before = [(part, dict(vars(part))) for part in _everything(strategy, set())]
    copies: dict[int, Any] = {}
    for part, attributes in before:  # what is written into while it plays is a copy
        vars(part).update({name: _copied(value, copies) for name, value in attributes.items()})
    try:
        yield
    finally:
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """A copy of a value that can change in place, tensors on the same memory again on the same; else the value."""
    if isinstance(value, Tensor):
        return deepcopy(value.detach(), copies)
    if isinstance(value, (Generator, random.Random, np.random.Generator)):
        return deepcopy(value, copies)
    if type(value) in (list, tuple):
        return type(value)(_copied(item, copies) for item in value)
    if type(value) is dict:
        return {key: _copied(item, copies) for key, item in value.items()}
    return copy(value) if isinstance(value, (list, dict, set)) else value


def depends_on_data(part: object) -> str | None:
    """The name of the first part or compressor inside whose messages depend on values; None if there is none."""
    if not isinstance(part, (Stateful, Compressor)):
        return None
    if part.traits.data_dependent if isinstance(part, Stateful) else part.data_dependent:
        return type(part).__name__
    inside = (
        item for value in vars(part).values() for item in (value if isinstance(value, (list, tuple)) else [value])
    )
    return next((name for value in inside if (name := depends_on_data(value)) is not None), None)


def _everything(value: object, visited: set[int]) -> Iterator[Stateful]:
    """Every stateful thing that can be reached, borrowed ones too."""
    inside: Iterable[object] = ()
    if isinstance(value, Stateful) and id(value) not in visited:
        visited.add(id(value))  # of what lives on: the id of a list made here could come again
        yield value
        inside = vars(value).values()
    elif isinstance(value, (list, tuple)):
        inside = value
    elif isinstance(value, Mapping):
        inside = value.values()
    for item in inside:
        yield from _everything(item, visited)


def _tensors(value: Any) -> list[Tensor]:
    kind: Any = type(value)
    return [
        tensor for item in _inside(kind)(value) for tensor in ([item] if isinstance(item, Tensor) else _tensors(item))
    ]


@cache
def _inside(kind: type) -> Callable[[Any], Iterable[object]]:
    """What gives the things that an object of a kind holds: asked once, since a profile looks into thousands."""
    if issubclass(kind, PLAIN):
        return lambda value: ()
    if issubclass(kind, Optimizer):
        return lambda value: (*(group["params"] for group in value.param_groups), *value.state.values())
    if issubclass(kind, (list, tuple)):
        return iter
    if issubclass(kind, Mapping):
        return lambda value: value.values()
    return (lambda value: vars(value).values()) if is_dataclass(kind) else (lambda value: ())
