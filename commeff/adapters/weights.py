"""Whether parameters are where a method has put them, and what it has left there: it may remember what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from commeff.adapters.holding import Holding
from commeff.communicator.wire.records import share_json
from commeff.core.local import Local
from commeff.core.properties import remembers
from commeff.core.strategy import Strategy
from commeff.sharding.foreign import local

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by their bytes


class Weights:
    """The parameters of a process between two steps.

    What a user does to them there, such as a projection, is a part of the worker's local step. Weights that are loaded
    are not: a method begins anew with them before its first step, and refuses them later if it remembers others.

    Parameters
    ----------
    holding : Holding
        The parameters.
    strategy : Strategy
        The method.
    """

    def __init__(self, holding: Holding, strategy: Strategy) -> None:
        self._holding, self._row = holding, holding.local_part.row
        self._remembered = remembers(strategy.parameters) or not isinstance(strategy.local, Local)
        self._first, self._expected = True, self._digests()
        self._versions = self._writes()
        self._pending = True
        for module in {module for part in holding.parts for module in part.modules()}:
            module.register_load_state_dict_pre_hook(OnLoad(self._loading))

    def _digests(self) -> Tensor:
        """Of each parameter another number when any of its is another one, if not by chance: their bits, added up."""
        with torch.no_grad():
            flat = (local(parameter).flatten() for parameter in self._holding.parameters.values())
            return torch.stack([numbers.view(INTEGERS[min(numbers.itemsize, 8)]).sum().cpu() for numbers in flat])

    def _writes(self) -> dict[str, int]:
        """The number of writes into each parameter whose numbers the method has elsewhere."""
        named = self._holding.parameters
        return {name: getattr(named[name], "_local_tensor", named[name])._version for name in self._row.copies()}

    def _loading(self) -> None:
        if not self._pending:
            self._expected, self._pending = self._digests(), True

    def settled(self) -> None:
        """A step, or a saved state, has moved them."""
        self._first = self._pending = False
        self._versions = self._writes()

    def restored(self) -> None:
        """They are again what they were."""
        self._versions = self._writes()

    def check(self) -> None:
        """Refuse parameters that the method does not see, or takes for others."""
        if moved := self._row.moved_parameters():
            raise RuntimeError(
                f"parameters must stay where the optimizer has put them, got {some(moved)} elsewhere: .to(), .half() "
                "or .data = ... has moved them; make the optimizer after that"
            )
        writes = self._writes()
        if written := [name for name, count in self._versions.items() if writes[name] != count]:
            raise RuntimeError(
                f"parameters must not be written into, got {some(written)} changed: the method has them in another "
                "dtype or place, and would put its own back; load weights before the optimizer is made"
            )
        if self._pending and not self._first and self._remembered and not torch.equal(self._digests(), self._expected):
            raise RuntimeError(
                "weights must not be loaded in the middle of a run, got others than the last step's: the method "
                "remembers those; load the optimizer's state_dict too, which has parameters, or make it anew"
            )

    def replaced(self) -> bool:
        """Whether other weights were loaded before the first step, in which every process calls it."""
        if not self._first:
            return False
        current = self._digests()
        report = [not torch.equal(current, self._expected), int(current.sum())]
        transport = self._holding.communicator.transport
        reports = share_json(report, transport.group) if transport.size > 1 else [report]
        if not any(changed for changed, _ in reports):
            return False
        if len({total for _, total in reports}) > 1:
            raise RuntimeError(
                "all workers must begin alike, got other weights at some since the optimizer was made: load the same "
                "at every process, or at rank 0 before it is made"
            )
        return self._remembered


class OnLoad:
    """A hook of a module, called before weights are loaded. Copies of the module, and saved ones, have an idle one."""

    def __init__(self, notice: Callable[[], None]) -> None:
        self._notice = notice

    def __call__(self, *_: object) -> None:
        self._notice()

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return getattr, ("", "format")  # takes whatever it is called with, and needs nothing of ours to be read


def some(names: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    every = list(names)
    return ", ".join(every[:3]) + (f" and {len(every) - 3} more" if len(every) > 3 else "")
