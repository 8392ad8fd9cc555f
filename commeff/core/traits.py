"""What is to be known of a part of a strategy without running it: its traits, and when it sends what."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

Scope = Literal["coordinate", "tensor", "whole"]
SCOPES: tuple[Scope, ...] = ("coordinate", "tensor", "whole")


@dataclass(frozen=True)
class Traits:
    """What a part of a strategy is like, its own parts apart. The defaults fit a transform that sends something.

    Attributes
    ----------
    scope : {"coordinate", "tensor", "whole"}
        What it works on: blocks of columns must not cut that.
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
        Names of the memories and parts that are equal at all workers where the result is.
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
        Of how many steps a stretch has to be that shows what it sends on average, if it never repeats.
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
