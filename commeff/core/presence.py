"""A step in which some workers are absent: transforms see the rows, and the memories, of those who are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from commeff.communicator import Communicator, view
from commeff.core.addresses import Address, RowSwap
from commeff.core.overlap import drain
from commeff.core.properties import contents, is_rowwise, remembers
from commeff.core.state import Stateful

if TYPE_CHECKING:
    from commeff.core.strategy import Strategy, Transform


def absence_faults(part: Stateful) -> Iterator[str]:
    """Why no worker may be absent from a step: a part's own reason, and those of what is inside."""
    if part.traits.needs_everyone:
        yield part.traits.needs_everyone
    for inner in contents(part):
        yield from absence_faults(inner)


def check_absence(part: Stateful) -> None:
    """Refuse absent workers where something needs all of them."""
    for reason in absence_faults(part):
        raise ValueError(f"every worker must take part in each step of this method, got absent ones: {reason}")


def step_of_present(
    strategy: Strategy, x: Tensor, gradient: Tensor, communicator: Communicator, moving: Tensor | None
) -> Tensor:
    """`Strategy.step` of the workers who are there; the other rows stay as they are. The memory of x is given away."""
    check_absence(strategy)
    present = view(communicator, among=communicator.context.present)
    if not present.n:
        return strategy.local(x, gradient, moving)  # rates and periods go on by the clock
    averaged = _among(strategy.gradients, gradient, present.child("gradients"))
    moved = strategy.local(x, averaged, moving)
    return _among(strategy.parameters, moved, present.child("parameters"))


def _among(transform: Transform, vectors: Tensor, communicator: Communicator) -> Tensor:
    """A transform of the rows of those who are there, whose `communicator` this is."""
    active = communicator.context.active
    if is_rowwise(transform) or active is None:
        return transform(vectors, communicator)
    with rows_of(transform, active, vectors.shape[1]):
        out = vectors.clone()
        out[active] = transform(vectors[active], communicator)
    return out


@contextmanager
def rows_of(part: Stateful, present: Tensor, width: int) -> Iterator[None]:
    """What `part` remembers of some workers alone, who are then all that it knows of. The others' stays as it is.

    Parameters
    ----------
    part : Stateful
        Any part of a strategy that has been started.
    present : (w,) bool
        The hosted workers that remain.
    width : int
        The columns of a row.
    """
    if not remembers(part):
        yield
        return
    drain(part)
    chosen = _Chosen(present)
    part.exchange(Address.of(width), chosen)
    yield
    drain(part)
    part.exchange(Address.of(width), _Back(chosen))


class _Chosen(RowSwap):
    """Swaps every worker's memory for that of the workers who are there, and keeps all of it."""

    def __init__(self, present: Tensor) -> None:
        self.index = present.nonzero().flatten()
        self.whole: dict[str, Any] = {}

    def swap(self, key: str, value: Tensor) -> Tensor:
        self.whole[key] = value
        return value[self.index.to(value.device)]


class _Back(RowSwap):
    """Swaps the memory of those who were there for that of all, in which theirs is the new one."""

    def __init__(self, chosen: _Chosen) -> None:
        self._index, self._whole = chosen.index, chosen.whole

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        prefix = f"{at.key}/"  # an optimizer may have a state of workers who are absent alone
        whole = {key.removeprefix(prefix): value for key, value in self._whole.items() if key.startswith(prefix)}
        return {**whole, **super().tensors(at, values)}

    def swap(self, key: str, value: Tensor) -> Tensor:
        workers = len(next(iter(self._whole.values())))
        whole = self._whole.get(key)
        whole = value.new_zeros(workers, *value.shape[1:]) if whole is None else whole  # remembered since this step
        if whole.stride(0) == 0 and len(whole) > 1:
            whole = whole.clone(memory_format=torch.contiguous_format)
        whole[self._index.to(whole.device)] = value
        return whole
