"""The tensors that a strategy holds on to, by part; and a strategy put back as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import is_dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from commeff.compressors import Compressor
from commeff.core import Stateful


def measure_memory(strategy: Stateful, borrowed: tuple[Tensor, ...] = ()) -> dict[str, int]:
    """Bytes of the tensors that each part holds between two steps, its own parts counted apart; without empty entries.

    Memory that several attributes share counts once, where it is met first.

    Parameters
    ----------
    strategy : started.
    borrowed : tensors of the driver, such as x, whose memory is not the strategy's.
    """
    places = {_place(tensor) for tensor in borrowed}
    sizes: dict[str, int] = {}
    for path, part in _parts(strategy, ""):
        own = {name: value for name, value in vars(part).items() if not _is_part(value)}
        fresh = {_place(t): t.untyped_storage().nbytes() for t in _tensors(own) if _place(t) not in places}
        places |= fresh.keys()
        if total := sum(fresh.values()):
            sizes[path] = total
    return sizes


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
    for part, attributes in before:  # what is appended to while it plays is a copy
        vars(part).update({name: copy(v) for name, v in attributes.items() if isinstance(v, (list, dict, set))})
    try:
        yield
    finally:
        for part, attributes in before:
            vars(part).clear()
            vars(part).update(attributes)


def depends_on_data(part: object) -> str | None:
    """The name of the first part or compressor inside whose messages depend on values; None if there is none."""
    if not isinstance(part, (Stateful, Compressor)):
        return None
    if part.data_dependent:
        return type(part).__name__
    inside = (
        item for value in vars(part).values() for item in (value if isinstance(value, (list, tuple)) else [value])
    )
    return next((name for value in inside if (name := depends_on_data(value)) is not None), None)


def _parts(part: Stateful, path: str) -> Iterator[tuple[str, Stateful]]:
    yield path, part
    for name, inner in part.parts():
        yield from _parts(inner, f"{path}.{name}".lstrip("."))


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


def _is_part(value: Any) -> bool:
    return isinstance(value, Stateful) or (isinstance(value, (list, tuple)) and any(map(_is_part, value)))


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Optimizer):
        yield from _tensors([group["params"] for group in value.param_groups])
        yield from _tensors(list(value.state.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif is_dataclass(value) and not isinstance(value, (type, Compressor)):
        yield from _tensors(list(vars(value).values()))


def _place(tensor: Tensor) -> int:
    """What tensors on the same memory have in common, also where it is not there (meta)."""
    return tensor.untyped_storage()._cdata
