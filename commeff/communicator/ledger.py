"""What a method sends, counted from the messages themselves, equal on every engine."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CAPACITY = 1000
TOTALS = ("payload_bytes", "wire_bytes", "messages", "rounds")


class Entry(NamedTuple):
    """One operation of one step. Bytes, messages and rounds are per worker: the mean where workers differ (a star).

    Attributes
    ----------
    step : int
        The clock when it was begun.
    path : str
        The place in the strategy.
    kind : str
        all_reduce, ring, tree, all_gather, server, mix, to_server or from_server.
    payload_bytes : float
        The bytes of the worker's own message.
    wire_bytes : float
        The bytes that the operation moves for it.
    messages : float
        How often it is sent.
    rounds : int
        1, or more where a message stands for several.
    """

    step: int
    path: str
    kind: str
    payload_bytes: float
    wire_bytes: float
    messages: float
    rounds: int


def whole(number: float) -> float:
    """An int where nothing is lost by it.

    >>> whole(4.0), whole(2.5)
    (4, 2.5)
    """
    return number if isinstance(number, int) or number != int(number) else int(number)


@dataclass
class Ledger:
    """Totals per worker since the start, and the last rows they are made of: a long run takes no more memory than a
    short one.

    *Payload* is what the method must send: the bytes of each message once, and once for a server's answer to a worker.
    *Wire* is what the collective moves for it, per worker: 2(n-1)/n of the payload in a ring all-reduce, (n-1) times in
    an all-gather, out-degree times in gossip.

    Attributes
    ----------
    payload_bytes, wire_bytes, messages, rounds : totals per worker.
    rows : list of Entry
        The last operations.
    capacity : int
        How many of them there are at least, if as many were billed; there are never more than twice as many.

    >>> ledger = Ledger()
    >>> ledger.bill(step=0, path="gradients", kind="mix", payload=100, wire=200, messages=2, rounds=1)
    >>> ledger.payload_bytes, ledger.wire_bytes, ledger.messages, ledger.rounds
    (100, 200, 2, 1)
    """

    payload_bytes: float = 0
    wire_bytes: float = 0
    messages: float = 0
    rounds: int = 0
    rows: list[Entry] = field(default_factory=list)
    capacity: int = field(default=CAPACITY, repr=False, compare=False)

    def bill(self, step: int, path: str, kind: str, payload: float, wire: float, messages: float, rounds: int) -> None:
        """Add one operation."""
        payload, wire, messages = whole(payload), whole(wire), whole(messages)
        self.rows.append(Entry(step, path, kind, payload, wire, messages, rounds))
        if len(self.rows) > 2 * self.capacity:
            del self.rows[: -self.capacity]
        self.payload_bytes += payload
        self.wire_bytes += wire
        self.messages += messages
        self.rounds += rounds

    def record(self) -> None:
        """Keep every row from here on: for laws and studies of short runs, whose memory then grows with the steps."""
        self.capacity = sys.maxsize

    def state_dict(self) -> dict[str, Any]:
        """The totals; rows are not saved."""
        return {name: getattr(self, name) for name in TOTALS}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Forget everything and go on from the given totals."""
        self.rows.clear()
        for name in TOTALS:
            setattr(self, name, 0 + state[name])  # a number
