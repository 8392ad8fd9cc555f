"""Workers who return to a run in which all others agree get what these agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from commeff.communicator import Communicator, broadcast
from commeff.core.addresses import Address, RowSwap, Swap
from commeff.core.properties import is_rowwise
from commeff.core.state import Stateful
from commeff.core.strategy import Strategy, Transform, agrees

RETURN = "return"  # its path in the ledger


def returns(strategy: Strategy, present: Callable[[int], Tensor], step: int) -> tuple[Tensor, int] | None:
    """Who returns in a step to what the others agree on, (n,) bool, and a worker who has that; None: nobody.

    present : who takes part in a step, (n,) bool.
    """
    last = step - 1
    while last > 0 and strategy.agrees(last) and not present(last).any():
        last -= 1
    if last < 0 or not strategy.agrees(last):
        return None
    before = present(last)
    returning = present(step) & ~before
    return (returning, int(before.nonzero()[0])) if bool(returning.any()) and bool(before.any()) else None


def attend(strategy: Strategy, x: Tensor, communicator: Communicator, present: Callable[[int], Tensor]) -> Tensor:
    """Begin the step ``communicator.step`` with the workers who take part in it: as `communicator.begin` does.

    Where all workers agreed after the last step, those who return get the parameters of the others, and the memories
    that are equal at all of them, as from a server, and are billed. Without it a worker returns with the parameters it
    had when it was last there. Every process calls it.

    Parameters
    ----------
    strategy : Strategy
        The method, started.
    x : (w, d)
        The parameters of the hosted workers.
    communicator : Communicator
        The communicator of all workers.
    present : callable
        present(step) is who takes part in a step, (n,) bool, such as `Participation.present`.

    Returns
    -------
    (w, d) : the parameters to begin with: x itself if nobody returns.

    Examples
    --------
    Worker 1 misses the first step of parallel SGD:

    >>> from functools import partial
    >>> from commeff import Communicator, Layout, methods
    >>> strategy = methods.psgd(partial(torch.optim.SGD, lr=0.5))
    >>> communicator, x = Communicator(workers=2), torch.zeros(2, 1)
    >>> strategy.start(x, Layout.flat(1), communicator)
    >>> for communicator.step in range(2):
    ...     x = attend(strategy, x, communicator, lambda step: torch.tensor([True, step > 0]))
    ...     x = strategy.step(x, x - torch.tensor([[2.0], [4.0]]), communicator)
    >>> x.tolist()
    [[2.0], [2.0]]
    """
    communicator.begin(communicator.step, present=present(communicator.step))
    returning = returns(strategy, present, communicator.step)
    if returning is None:
        return x
    x = x.clone(memory_format=torch.contiguous_format)
    _bring_back(strategy, x, communicator, *returning)
    return x


def _bring_back(strategy: Strategy, x: Tensor, communicator: Communicator, returning: Tensor, source: int) -> None:
    """Write what a worker who was there has over the rows of those who return, (n,) bool."""
    hosted, state = list(communicator.workers), None
    strategy.drain()
    if source in hosted:
        row = hosted.index(source)
        exchange_common(strategy, x.shape[1], reader := RowReader(row))
        state = {"x": x[row].clone(), "memories": reader.values}
    state = broadcast(communicator, state, source)
    rows = returning[hosted]
    if bool(rows.any()):
        x[rows.to(x.device)] = state["x"].to(x.device)
        exchange_common(strategy, x.shape[1], _RowWriter(state["memories"], rows))
    share = float(returning.sum()) / communicator.n
    sizes = [value.nbytes for value in state["memories"].values() if value.dtype != torch.bool]  # numbers travel
    size = share * (state["x"].nbytes + sum(sizes))
    communicator.ledger.bill(communicator.step, RETURN, "from_server", size, size, share, 1)


def exchange_common(strategy: Strategy, d: int, swap: Swap) -> None:
    """Swap the memories that are equal at all workers after a step in which they agree."""
    top = Address.of(d)
    if is_rowwise(strategy.parameters):  # equal gradients keep optimizers equal
        strategy.local.exchange(top.child("local"), swap)
    _visit(strategy, top, swap)


def _visit(part: Stateful, at: Address, swap: Swap) -> None:
    for name, inner in part.parts():
        inner_at = part.address(name, at)
        for common in inner.traits.common if isinstance(inner, Transform) and agrees(inner) else ():
            value = getattr(inner, common)
            if isinstance(value, Stateful):
                value.exchange(inner.address(common, inner_at), swap)
            else:
                setattr(inner, common, swap.rows(inner_at.child(common), value))
        _visit(inner, inner_at, swap)


class RowReader(RowSwap):
    """A swap that changes nothing, and copies some rows of each memory.

    Parameters
    ----------
    index : int or Tensor
        Which of the hosted workers', as tensors are indexed.

    Attributes
    ----------
    values : dict of str to Tensor
        The copies.
    """

    def __init__(self, index: int | Tensor) -> None:
        self.index, self.values = index, dict[str, Tensor]()

    def swap(self, key: str, value: Tensor) -> Tensor:
        self.values[key] = value[self.index].clone()
        return value


class _RowWriter(RowSwap):
    """A swap that writes these rows over those of some of the hosted workers."""

    def __init__(self, memories: Mapping[str, Tensor], returning: Tensor) -> None:
        self._memories, self._returning = memories, returning

    def swap(self, key: str, value: Tensor) -> Tensor:
        return self._written(value, self._memories[key])

    def tensors(self, at: Address, values: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        prefix = f"{at.key}/"
        saved = {key.removeprefix(prefix): row for key, row in self._memories.items() if key.startswith(prefix)}
        blank = {name: row.new_zeros(len(self._returning), *row.shape) for name, row in saved.items()}
        return dict(values) | {name: self._written(values.get(name, blank[name]), row) for name, row in saved.items()}

    def _written(self, value: Tensor, row: Tensor) -> Tensor:
        out = value.clone(memory_format=torch.contiguous_format)
        out[self._returning.to(out.device)] = row.to(out)
        return out
