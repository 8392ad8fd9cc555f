"""What is remembered between steps: saved, restored, copied, and distributed anew over processes."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from torch import Tensor

from commeff.compressors import Compressor
from commeff.core.addresses import Address, Swap
from commeff.topologies import Topology

if TYPE_CHECKING:
    from commeff.core.events import WaitsFor

Scope = Literal["coordinate", "tensor", "whole"]
SCOPES: tuple[Scope, ...] = ("coordinate", "tensor", "whole")


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
    own_scope : {"coordinate", "tensor", "whole"}
        What it works on itself, its parts apart.
    own_exact_on_pieces : bool
        Whether it is exact on pieces of a row itself, though it does not work on coordinates one by one.
    data_dependent : bool
        Whether what it sends, and when, depends on values and not on shapes and the clock alone.
    on_host : bool
        Whether what its parts remember lies in the host's memory, whatever device the rows are on.
    common : tuple of str
        Names of the memories and parts that are equal at all workers where the result is.
    why_all : str
        Why no worker may be absent from a step, if that is so.
    restless : str
        Why equal workers whose gradients are 0 move nevertheless, if they do.
    """

    rows: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[tuple[str, ...]] = ()
    own_scope: ClassVar[Scope] = "coordinate"
    own_exact_on_pieces: ClassVar[bool] = False
    data_dependent: ClassVar[bool] = False
    on_host: ClassVar[bool] = False
    common: ClassVar[tuple[str, ...]] = ()
    why_all: ClassVar[str] = ""
    restless: ClassVar[str] = ""

    def parts(self) -> Iterator[tuple[str, Stateful]]:
        """The parts that have memories of their own, by name."""
        for name, value in sorted(vars(self).items()):
            if name.startswith("_"):
                continue
            if isinstance(value, Stateful):
                yield name, value
            elif isinstance(value, (list, tuple)):
                yield from ((f"{name}.{i}", part) for i, part in enumerate(value) if isinstance(part, Stateful))

    @property
    def scope(self) -> Scope:
        """What a block of columns may cut: nothing that the widest scope among parts and compressors needs whole."""
        compressors = (value.scope for value in vars(self).values() if isinstance(value, Compressor))
        return max((self.own_scope, *compressors, *(part.scope for _, part in self.parts())), key=SCOPES.index)

    @property
    def exact_on_pieces(self) -> bool:
        """Whether a row may lie in pieces on several ranks: each, started with the layout of its own, gives its piece
        of what comes of the whole row.
        """
        own = self.own_scope == "coordinate" or self.own_exact_on_pieces
        compressors = (value.exact_on_pieces for value in vars(self).values() if isinstance(value, Compressor))
        return own and all(compressors) and all(part.exact_on_pieces for _, part in self.parts())

    @property
    def kind(self) -> str:
        """What it is, in a word."""
        return type(self).__name__

    @property
    def cycle(self) -> int | None:
        """After how many steps it sends again what it sent, as far as the clock decides; None: it never repeats."""
        topologies = (value.period for value in vars(self).values() if isinstance(value, Topology))
        cycles = [*topologies, *(part.cycle for _, part in self.parts())]
        finite = [cycle for cycle in cycles if cycle is not None]
        return math.lcm(*finite) if len(finite) == len(cycles) else None

    @property
    def beat(self) -> int:
        """Of how many steps a stretch has to be that shows what it sends on average, if it never repeats."""
        return math.lcm(*(part.beat for _, part in self.parts()))

    @property
    def turns(self) -> frozenset[int]:
        """The steps at which it begins to send something else."""
        return frozenset().union(*(part.turns for _, part in self.parts()))

    @property
    def warming(self) -> bool:
        """Whether its messages are still first ones, of another kind than those to come."""
        return any(part.warming for _, part in self.parts())

    @property
    def remembers(self) -> bool:
        """Whether it or any of its parts has a memory."""
        return bool(self.rows or self.shared) or any(part.remembers for _, part in self.parts())

    @property
    def needs_all(self) -> tuple[str, ...]:
        """Why every worker has to take part in every step: its own reason, and those of its parts."""
        own = (self.why_all,) if self.why_all else ()
        return (*own, *(reason for _, part in self.parts() for reason in part.needs_all))

    @property
    def waits_for(self) -> WaitsFor | None:
        """For whom its workers wait, if they need not go in step; None: they do."""
        return next((found for _, part in self.parts() if (found := part.waits_for) is not None), None)

    @property
    def taken(self) -> Tensor | None:
        """(n,) the steps that each worker has taken, if its workers need not go in step."""
        return next((found for _, part in self.parts() if (found := part.taken) is not None), None)

    @property
    def unrest(self) -> tuple[str, ...]:
        """Why equal workers whose gradients are 0 move: its own reason, and those of its parts."""
        own = (self.restless,) if self.restless else ()
        return (*own, *(reason for _, part in self.parts() for reason in part.unrest))

    @property
    def essence(self) -> Stateful:
        """What decides the results: itself, unless it only decides when another's messages are sent."""
        return self

    def drain(self) -> None:
        """Wait for everything that still travels; what has arrived is kept until it is due."""
        for _, part in self.parts():
            part.drain()

    def exchange(self, at: Address, swap: Swap) -> None:
        """Give every memory to `swap`, and remember what it gives back. Call `drain` on the whole strategy first."""
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
