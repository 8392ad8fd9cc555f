"""What is remembered between steps: saved, restored, copied, and distributed anew over processes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from commeff.core.addresses import Address, Swap
from commeff.core.traits import Timetable, Traits
from commeff.topologies import Topology


class Stateful:
    """Something with a memory that can be saved, restored and distributed anew over processes.

    What is remembered between steps is declared, not discovered. An attribute whose name begins with an underscore is
    not saved and not copied: it is borrowed from somebody else, or `start` makes it again.

    Attributes
    ----------
    rows : tuple of str
        Names of the tensors with one row per hosted worker.
    shared : tuple of str
        Names of the values that are equal on every process.
    traits : Traits
        What it is like, its parts apart. A constructor replaces it where its arguments decide.
    """

    rows: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[tuple[str, ...]] = ()
    traits: Traits = Traits()

    def parts(self) -> Iterator[tuple[str, Stateful]]:
        """The parts that have memories of their own, by name."""
        for name, value in sorted(vars(self).items()):
            if name.startswith("_"):
                continue
            if isinstance(value, Stateful):
                yield name, value
            elif isinstance(value, (list, tuple)):
                yield from ((f"{name}.{i}", part) for i, part in enumerate(value) if isinstance(part, Stateful))

    def timetable(self) -> Timetable:
        """When it and its parts send what, as far as the clock decides."""
        topologies = (Timetable(value.period) for value in vars(self).values() if isinstance(value, Topology))
        return Timetable().join(*topologies, *(part.timetable() for _, part in self.parts()))

    def exchange(self, at: Address, swap: Swap) -> None:
        """Give every memory to `swap`, and remember what it gives back. Call `overlap.drain` on the whole first."""
        for name in self.rows:
            self._remember(name, swap.rows(at.child(name), value := getattr(self, name)), value)
        for name in self.shared:
            self._remember(name, swap.shared(at.child(name), value := getattr(self, name)), value)
        for name, part in self.parts():
            part.exchange(self.address(name, at), swap)

    def _remember(self, name: str, new: Any, old: Any) -> None:
        if new is not old:
            setattr(self, name, new)

    def address(self, part: str, at: Address) -> Address:
        """The address of a part of what is at this address."""
        return at.child(part)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        for name, value in vars(self).items():
            # What is only looked at is not copied, but in a copy of the whole it is the copy that is looked at.
            setattr(twin, name, memo.get(id(value), value) if name.startswith("_") else copy.deepcopy(value, memo))
        return twin
