"""A strategy's memories as named tensors, which know nothing of how the run that saved them was laid out.

A row-shaped memory is saved tensor by tensor of the model: `worker2/parameters/inner/anchor/blocks.0.norm.weight`.
Each process has some boxes of it; all of them together are the whole, of which another layout reads its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from commeff.core.addresses import Address
from commeff.parallelism.boxes import Whereabouts
from commeff.parallelism.saved import Held, Kind

CPU = torch.device("cpu")


class Named:
    """Tensors by name, of which this process holds boxes.

    Parameters
    ----------
    where : Whereabouts
        Of the process's columns.
    workers : sequence of int
        Its workers.

    Attributes
    ----------
    held : dict of str to Held
        The tensors.
    """

    def __init__(self, where: Whereabouts, workers: Sequence[int]) -> None:
        self._workers, self._boxes = workers, cache(where.boxes)
        self.held: dict[str, Held] = {}

    def owners(self, at: Address, rows: int) -> list[str]:
        """Whose rows they are."""
        return ["server"] * rows if at.server else [f"worker{worker}" for worker in self._workers]

    def tensors(self, at: Address) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors whose columns these are, by their names."""
        return {box.tensor: box.shape for box in self._boxes(at.spans)}

    def put(self, owner: str, at: Address, row: Tensor) -> None:
        """Add a row (..., columns), tensor by tensor: views of it, if it is contiguous."""
        before = row.shape[:-1]
        for box in self._boxes(at.spans):
            columns = row[..., box.start : box.stop].reshape(*before, *box.sizes)
            tensor = self.held.setdefault(f"{owner}/{at.name}/{box.tensor}", Held((*before, *box.shape)))
            tensor.put((*(0 for _ in before), *box.offsets), columns)

    def whole(self, name: str, value: Tensor) -> None:
        """Add a tensor that is here as a whole; several processes may have it."""
        self.held.setdefault(name, Held(tuple(value.shape))).put((0,) * value.ndim, value)


def has_columns(at: Address, value: Tensor) -> bool:
    """Whether a memory is a number for each column, or several."""
    return value.ndim > 1 and value.shape[-1] == at.width


def is_table(value: Any) -> bool:
    """Whether a memory is tensors by names."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(inner, Tensor) for inner in value.values())


class MemorySaver:
    """Collects a strategy's memories; nothing is copied.

    Attributes
    ----------
    named : Named
        The tensors.
    values : dict
        What is equal on every process, and no tensor.
    """

    def __init__(self, named: Named) -> None:
        self.named = named
        self.values: dict[str, Any] = {}

    def rows(self, at: Address, value: Tensor) -> Tensor:
        """See `Swap`."""
        for owner, row in zip(self.named.owners(at, len(value)), value, strict=True):
            if has_columns(at, value):
                self.named.put(owner, at, row)
            elif at.width:  # of columns of which it has none, a process knows no better than the others
                self.named.whole(f"{owner}/{at.path}{at.apart}", row)
        return value

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See `Swap`."""
        for name, value in values.items():
            for owner, row in zip(self.named.owners(at, len(value)), value, strict=True):
                if row.ndim and row.numel() == at.width:
                    self.named.put(owner, at.child(name), row.flatten())
                    continue
                for tensor in self.named.tensors(at):
                    self.named.whole(f"{owner}/{at.name}/{name}/{tensor}", row)
        return values

    def shared(self, at: Address, value: Any) -> Any:
        """See `Swap`."""
        if is_table(value):
            for name, inner in value.items():
                self.named.whole(f"shared/{at.name}{at.apart}/{name}", inner)
        elif not isinstance(value, Tensor):
            self.values[at.path] = value
        elif has_columns(at, value):
            self.named.put("shared", at, value)
        else:
            self.named.whole(f"shared/{at.path}{at.apart}", value)
        return value

    schedule = shared


class MemoryLoader:
    """Gives a strategy the memories that were saved, in two walks: the first changes nothing and says what to read.

    Parameters
    ----------
    named : Named
        Gets the tensors that are to be read.
    kinds : mapping of str to Kind
        The saved tensors.
    values : mapping
        What was saved that is no tensor.
    device : torch.device
        Where the memories are to be.

    Attributes
    ----------
    arrived : bool
        Whether everything has been read.
    """

    def __init__(
        self, named: Named, kinds: Mapping[str, Kind], values: Mapping[str, Any], device: torch.device = CPU
    ) -> None:
        self.named, self._kinds, self._values, self._device = named, kinds, values, device
        self._targets: dict[str | Address, Tensor] = {}
        self.arrived = False

    def rows(self, at: Address, value: Tensor) -> Tensor:
        """See `Swap`."""
        if not value.numel():
            return value
        owners = self.named.owners(at, len(value))
        if has_columns(at, value):
            target = self._columns(owners, at, value)
        else:
            target = self._wholes([f"{owner}/{at.path}{at.apart}" for owner in owners], value[0])
        return target.to(value.device) if self.arrived else value

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See `Swap`."""
        tensors, owners, found = self.named.tensors(at), self.named.owners(at, 1), dict[str, Tensor]()
        if not tensors:
            return values
        tensor, shape = next(iter(tensors.items()))
        start, end = f"{owners[0]}/{at.name}/", f"/{tensor}"
        for name in [key[len(start) : -len(end)] for key in self._kinds if key.startswith(start)]:
            kind = self._kinds.get(f"{start}{name}{end}")
            if kind is None:
                continue
            like = torch.empty(kind.shape, dtype=kind.dtype)
            if kind.shape == shape:
                target = self._columns(owners, at.child(name), like.new_empty(len(owners), at.width))
            else:
                target = self._wholes([f"{owner}/{at.name}/{name}{end}" for owner in owners], like)
            found[name] = target.to(self._device)
        return found if self.arrived else values

    def shared(self, at: Address, value: Any) -> Any:
        """See `Swap`."""
        if is_table(value):
            names = {name: f"shared/{at.name}{at.apart}/{name}" for name in value}
            table = {name: self._wholes([names[name]], inner)[0] for name, inner in value.items()}
            return {name: table[name].to(inner.device) for name, inner in value.items()} if self.arrived else value
        if isinstance(value, Tensor):
            if has_columns(at, value):
                target = self._columns(["shared"], at, value[None])[0]
            else:
                target = self._wholes([f"shared/{at.path}{at.apart}"], value)[0]
            return target.to(value.device) if self.arrived else value
        if at.path not in self._values:
            raise ValueError(f"the saved state must hold {at.path}, got none: it is another method's state")
        return self._values[at.path] if self.arrived else value

    schedule = shared

    def _columns(self, owners: Sequence[str], at: Address, like: Tensor) -> Tensor:
        if at not in self._targets:
            self._targets[at] = torch.empty(like.shape, dtype=like.dtype)
            for owner, row in zip(owners, self._targets[at], strict=True):
                self.named.put(owner, at, row)
        return self._targets[at]

    def _wholes(self, names: Sequence[str], like: Tensor) -> Tensor:
        for name in names:
            if name not in self._targets:
                self._targets[name] = torch.empty(like.shape, dtype=like.dtype)
                self.named.whole(name, self._targets[name])
        return torch.stack([self._targets[name] for name in names])


class Anew:
    """Leaves a strategy as it has started, but for its schedules, which go on.

    Parameters
    ----------
    values : mapping
        What was saved that is no tensor.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def rows(self, at: Address, value: Tensor) -> Tensor:
        """See `Swap`."""
        return value

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """See `Swap`."""
        return values

    def shared(self, at: Address, value: Any) -> Any:
        """See `Swap`."""
        return value

    def schedule(self, at: Address, value: Any) -> Any:
        """See `Swap`."""
        return self._values.get(at.path, value)
