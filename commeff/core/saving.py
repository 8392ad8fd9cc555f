"""What a strategy remembers, by name: one flat mapping, which does not know how the process that saved it was laid out.

A memory of columns is saved tensor by tensor of the model: `parameters/inner/anchor/blocks.0.norm.weight`, with a row
for each worker where workers have their own. Each process has some boxes of it; another layout reads others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from commeff.boxes import Boxes, ColumnMap
from commeff.compressors import Layout
from commeff.core.addresses import Address, BoxNames, NamedBox, RowSwap
from commeff.core.overlap import drain
from commeff.core.state import Stateful

T = TypeVar("T")

ELSE = "it is another method's state, or another version's"


class MemorySaver:
    """Collects memories; no tensor is copied.

    Parameters
    ----------
    names : BoxNames
        Where they are saved.

    Attributes
    ----------
    saved : dict of str to Boxes
        What is here of each tensor.
    """

    def __init__(self, names: BoxNames) -> None:
        self._names = names
        self.saved: dict[str, Boxes] = {}
        self._values: dict[str, Any] = {}

    @property
    def values(self) -> dict[str, Any]:
        """The values, no tensors, that are equal on every process; without the empty parts of tables."""
        tables = {name.rpartition("/")[0] for name in self.saved}
        return {path: value for path, value in self._values.items() if value != {} or path not in tables}

    def put(self, boxes: Iterable[NamedBox], value: Tensor) -> None:
        """Add the parts of a memory."""
        for named in boxes:
            box = value[named.part].reshape(named.sizes)
            self.saved.setdefault(named.name, Boxes(named.shape)).put(named.offsets, box)

    def rows(self, at: Address, value: Tensor) -> Tensor:
        """See `Swap`. Of columns of which it has none, a process knows no better than the others, if there are any."""
        if len(value) and (at.width or self._names.of_one_process):
            self.put(self._names.of(at, value.shape, True), value)
        return value

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See `Swap`."""
        for name, value in values.items():
            if not len(value):
                continue
            flat = value.flatten(1) if value.ndim > 1 else value
            if flat.ndim > 1 and flat.shape[1] == at.width:
                self.put(self._names.of(at.child(name), flat.shape, True), flat)
            else:
                self.put(self._names.numbers(at, name, value.shape), value)
        return values

    def shared(self, at: Address, value: Any) -> Any:
        """See `Swap`. What is empty here, the server's rows at another process, is nobody's but theirs who have it."""
        if is_table(value):
            for name, inner in value.items():
                self.put([_entry(at, name, inner)], inner)
        elif isinstance(value, Tensor):
            self.put(self._names.of(at, value.shape, False) if value.numel() else (), value)
        else:
            self._values[at.path] = copy.deepcopy(value)
        return value

    schedule = shared


class MemoryLoader:
    """Gives memories what was saved, in two walks: the first reads, changes nothing, and may refuse.

    Parameters
    ----------
    names : BoxNames
        Where they are saved.
    saved : mapping of str to Boxes
        The tensors.
    values : mapping
        What was saved that is no tensor.

    Attributes
    ----------
    used : set of str
        The names of what was read.
    arrived : bool
        Whether the first walk is over.
    """

    def __init__(self, names: BoxNames, saved: Mapping[str, Boxes], values: Mapping[str, Any]) -> None:
        self._names, self._saved, self._values = names, saved, values
        self._loaded: dict[Address, Any] = {}
        self.used: set[str] = set()
        self.arrived = False

    def rows(self, at: Address, value: Tensor) -> Tensor:
        """See `Swap`."""
        return self._exchange(at, value, lambda: self._tensor(at, value, True)) if value.numel() else value

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See `Swap`."""
        return self._exchange(at, values, lambda: self._optimizer(at)) if at.width else values

    def shared(self, at: Address, value: Any) -> Any:
        """See `Swap`."""
        if is_table(value):
            return self._exchange(at, value, lambda: {n: self._read([_entry(at, n, v)], v) for n, v in value.items()})
        if isinstance(value, Tensor):
            return self._exchange(at, value, lambda: self._tensor(at, value, False)) if value.numel() else value
        if isinstance(value, Mapping) and not value and at.path not in self._values:
            return value  # a table of which this process has no entry
        return self._exchange(at, value, lambda: self._value(at.path))

    schedule = shared

    def _exchange(self, at: Address, value: T, make: Callable[[], T]) -> T:
        if self.arrived:
            return self._loaded.pop(at)
        self._loaded[at] = make()
        return value

    def _tensor(self, at: Address, like: Tensor, of_workers: bool) -> Tensor:
        return self._read(self._names.of(at, like.shape, of_workers), like)

    def _read(self, boxes: Iterable[NamedBox], like: Tensor) -> Tensor:
        """A memory like another one, from where its parts are saved."""
        new = torch.empty_like(like, memory_format=torch.contiguous_format)
        for named in boxes:
            new[named.part] = self._box(named).reshape(new[named.part].shape)
        return new

    def _optimizer(self, at: Address) -> dict[str, Tensor]:
        """What an optimizer remembered of tensors, under the names that it gave to it."""
        state = dict[str, Tensor]()
        tensor, shape = next(iter(self._names.tensors(at).items()))
        for name, saved in self._of_tensor(at.name, tensor):
            like = torch.empty(self._names.rows(at, saved.shape[0]), at.width, dtype=saved.dtype)
            boxes = [*self._names.of(at.child(name), like.shape, True)]
            if saved.shape[1:] == shape and any(saved.has(box.offsets, box.sizes) for box in boxes):
                state[name] = self._read(boxes, like)
        for name, saved in self._of_tensor(at.path, tensor):
            if saved.shape[1:] != shape:
                rows = self._names.rows(at, saved.shape[0])
                first, *others = self._names.numbers(at, name, (rows, *saved.shape[1:]))
                state[name] = self._box(first).clone()
                self.used |= {named.name for named in others}  # one stands for those of all
        return state

    def _of_tensor(self, path: str, tensor: str) -> Iterator[tuple[str, Boxes]]:
        """What was saved of a tensor there, under the names that the optimizer gave to it."""
        start, end = f"{path}/", f"/{tensor}"
        for key, saved in self._saved.items():
            if len(key) > len(start) + len(end) and key.startswith(start) and key.endswith(end):
                yield key[len(start) : -len(end)], saved

    def _box(self, named: NamedBox) -> Tensor:
        saved = self._saved.get(named.name)
        if saved is None:
            raise ValueError(f"the saved state must hold {named.name}, got none: {ELSE}")
        if saved.shape != named.shape:
            shapes = f"shape {named.shape}, got {saved.shape}"
            raise ValueError(
                f"the saved {named.name} must have {shapes}: it is another model's or method's state, or its "
                "shape depends on how many workers a process hosts, which one in `rows` may and one in `shared` may not"
            )
        self.used.add(named.name)
        try:
            return saved.read(named.offsets, named.sizes)
        except ValueError as error:
            raise ValueError(f"the saved {named.name} {error}") from None

    def _value(self, name: str) -> Any:
        if name not in self._values:
            raise ValueError(f"the saved state must hold {name}, got none: {ELSE}")
        self.used.add(name)
        return copy.deepcopy(self._values[name])


class Fresh(RowSwap):
    """Leaves a strategy as it has started, but for its schedules, which go on.

    Parameters
    ----------
    values : mapping
        What was saved that is no tensor.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def schedule(self, at: Address, value: Any) -> Any:
        return self._values.get(at.path, value)


def save(part: Stateful, layout: Layout) -> dict[str, Any]:
    """A copy of all that a part of a strategy remembers, started with this layout: tensors and plain values by name."""
    drain(part)
    saver = MemorySaver(BoxNames(ColumnMap.of(layout)))
    part.exchange(Address.of(layout.d), saver)
    return saver.values | {name: _copy(boxes) for name, boxes in saver.saved.items()}


def load(part: Stateful, layout: Layout, state: Mapping[str, Any]) -> None:
    """Restore what `save` gave. A state of another method is refused, and nothing is changed then."""
    saved = {name: boxes_of(value) for name, value in state.items() if isinstance(value, Tensor) or is_table(value)}
    at, loader = Address.of(layout.d), MemoryLoader(BoxNames(ColumnMap.of(layout)), saved, state)
    drain(part)
    part.exchange(at, loader)
    if unknown := sorted(state.keys() - loader.used):
        raise ValueError(f"the saved state must not hold {unknown[0]}: {ELSE}")
    loader.arrived = True
    part.exchange(at, loader)


def boxes_of(value: Tensor | Mapping[str, Tensor]) -> Boxes:
    """What `save` gave of a tensor: the whole of it, or its `shape` and by their offsets the boxes that were there."""
    if isinstance(value, Tensor):
        return Boxes.of(value)
    boxes = [([*map(int, at.split(","))], box) for at, box in value.items() if at != "shape"]
    return Boxes(value["shape"].tolist(), boxes)


def _copy(boxes: Boxes) -> Tensor | dict[str, Tensor]:
    if boxes.complete:
        return boxes.whole().clone(memory_format=torch.contiguous_format)
    parts = {",".join(map(str, at)): box.clone() for at, box in boxes.boxes.items()}
    return {"shape": torch.tensor(boxes.shape)} | parts


def is_table(value: Any) -> bool:
    """Whether a memory is tensors by names."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(inner, Tensor) for inner in value.values())


def _entry(at: Address, name: str, value: Tensor) -> NamedBox:
    """The box in which an entry of a table is saved."""
    return NamedBox(f"{at.name}{at.piece}/{name}", value.shape, (0,) * value.ndim, value.shape)
