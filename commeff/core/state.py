"""What is to be known of a part of a strategy without running it: its traits, when it sends what, and what it remembers
between steps, which is saved, restored, copied, and distributed anew over processes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from commeff.compressors import Scope
from commeff.core.addresses import Address, Swap
from commeff.topologies import Topology


@dataclass(frozen=True)
class Traits:
    """What a part of a strategy is like, its own parts apart. The defaults fit a transform that sends something.

    Attributes
    ----------
    scope : {"coordinate", "tensor", "whole"}
        The unit of a row that blocks of columns must not cut.
    exact_on_pieces : bool, optional
        Whether each rank that holds a piece of a row gets its piece of the whole row's result; None: if it works on
        coordinates one by one.
    data_dependent : bool
        Whether what it sends, and when, depends on values and not on shapes and the clock alone.
    rowwise : bool
        Whether a row of its result follows from that row of its input alone, if its parts are so too.
    sends : bool
        Whether it sends anything, where it is not rowwise.
    agrees : bool
        Whether its result is equal at all workers, after every call.
    common : tuple of str
        With `agrees`, names of the memories and parts that are equal at all workers whenever the result is.
    needs_everyone : str
        Why no worker may be absent from a step, if that is so.
    moves_at_consensus : str
        Why equal workers whose gradients have been 0 since the start move nevertheless, if they do.
    on_host : bool
        Whether what its parts remember lies in the host's memory, whatever device the rows are on.

    Examples
    --------
    >>> Traits(scope="tensor", agrees=True).exact
    False
    """

    scope: Scope = "coordinate"
    exact_on_pieces: bool | None = None
    data_dependent: bool = False
    rowwise: bool = False
    sends: bool = True
    agrees: bool = False
    common: tuple[str, ...] = ()
    needs_everyone: str = ""
    moves_at_consensus: str = ""
    on_host: bool = False

    @property
    def exact(self) -> bool:
        """Whether it is exact on pieces."""
        return self.scope == "coordinate" if self.exact_on_pieces is None else self.exact_on_pieces


@dataclass(frozen=True)
class Timetable:
    """When a part sends what, as far as the clock decides.

    Attributes
    ----------
    period : int or None
        After how many steps it sends messages of the same sizes again; None: it never does.
    sample : int
        The steps of a stretch that shows what it sends on average, if it never repeats.
    changes : frozenset of int
        The steps at which it begins to send something else.
    settled : bool
        Whether its first messages, of another kind than those to come, are over.

    Examples
    --------
    >>> Timetable(period=2).join(Timetable(period=3, changes=frozenset({5})))
    Timetable(period=6, sample=1, changes=frozenset({5}), settled=True)
    """

    period: int | None = 1
    sample: int = 1
    changes: frozenset[int] = field(default=frozenset())
    settled: bool = True

    def join(self, *others: Timetable) -> Timetable:
        """That of several parts together."""
        tables = (self, *others)
        periods = [table.period for table in tables if table.period is not None]
        return Timetable(
            period=math.lcm(*periods) if len(periods) == len(tables) else None,
            sample=math.lcm(*(table.sample for table in tables)),
            changes=frozenset().union(*(table.changes for table in tables)),
            settled=all(table.settled for table in tables),
        )


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


def walk(part: Stateful, path: str = "") -> Iterator[tuple[str, Stateful]]:
    """A part and all parts inside, the outermost first, each with the names on the way to it, dots between them."""
    yield path, part
    for name, inner in part.parts():
        yield from walk(inner, f"{path}.{name}".lstrip("."))
