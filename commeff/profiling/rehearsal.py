"""One process of n, played alone: what it posts is billed as ever, and what others would send is blank."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from torch import Tensor

from commeff.communicator import Communicator, Handle
from commeff.communicator.mixing import InPlace, MixPlan
from commeff.communicator.wire.transport import Arrived, Transport
from commeff.compressors import Message
from commeff.core import Stateful
from commeff.profiling.coding import Coding, matching
from commeff.topologies import MixingMatrix, Topology
from commeff.topologies.failures import Sums

T = TypeVar("T")


class Operation(NamedTuple):
    """One communication of one step. Bytes, messages and rounds are per worker, as in `commeff.communicator.Entry`.

    Attributes
    ----------
    step, path, kind : when, by which part of the strategy, and how: the words of the ledger.
    payload_bytes, wire_bytes : of a worker's own messages, and what the collective moves for them.
    messages, rounds : how many others it sends to, and how many communications one after the other.
    matrix : who receives from whom, where a mixing matrix says so.
    slot : "gradients" or "parameters", the place in the sandwich.
    early : whether it leaves before the gradient is computed, so that the whole computation can hide it.
    bucketed : whether it leaves block by block while gradients are still computed.
    waited : the step in which the result is waited for.
    coding : of its messages, where a compressor makes them, and the coordinates of one.
    posted : the step in which it leaves, where that is a later one than its own: a round that begins with the result of
        another one, which arrived meanwhile.
    shards : of how many workers the server's row is a part, whose operations go at once; 1 where one has all of it.
    """

    step: int
    path: str
    kind: str
    payload_bytes: float
    wire_bytes: float
    messages: float
    rounds: int
    matrix: MixingMatrix | None = None
    slot: str = "gradients"
    early: bool = False
    bucketed: bool = False
    waited: int = 0
    shards: int = 1
    posted: int = 0
    coding: Coding | None = None
    coordinates: int = 0

    def moved(self, steps: int) -> Operation:
        """The operation so many steps later."""
        return self._replace(step=self.step + steps, waited=self.waited + steps, posted=self.posted + steps)


class Blank(Transport):
    """The wire of one process of n whose peers send zeros, at once.

    Attributes
    ----------
    operations : what has been posted, in order.
    homes : with which worker the server's row was, at each of them.
    early, bucketed : how what is posted now leaves, see `Operation`.
    matrix : of the mixing that is posted now.
    plans : of the mixings so far, by their matrices.
    clocked : the kinds of parts that have read the clock by a rule of their own, of which nothing says when it repeats.
    now : the step that is played. A delayed transform sets the communicator's clock back to when it began.
    """

    def __init__(self, size: int, rank: int) -> None:
        super().__init__()
        self.size, self.rank = size, rank
        self.operations: list[Operation] = []
        self.homes: list[int] = []
        self.early, self.bucketed, self.now = False, False, 0
        self.matrix: MixingMatrix | None = None
        self.plans: dict[MixingMatrix, MixPlan] = {}
        self.clocked: dict[str, None] = {}

    def sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """The process's own term."""
        return lambda: tensor

    def all_gather(self, rows: Tensor, sizes: list[int]) -> Callable[[], Tensor]:
        """As many rows as all would send."""
        return lambda: rows.new_zeros(sum(sizes), rows.shape[1])

    def exchange(
        self, kind: str, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]
    ) -> Callable[[], Arrived]:
        """Zeros in every buffer that would be received."""
        return lambda: {peer: buffer.zero_() for peer, buffer in incoming.items()}

    @contextmanager
    def together(self, linger: bool = False) -> Iterator[None]:
        """Nothing is held back."""
        yield


class Rehearsal(Communicator):
    """The communicator of process `rank` of n, one worker each, which writes down every operation.

    Parameters
    ----------
    workers : n.
    rank : which of the n processes is played.
    seed, collective : as of a `Communicator`.
    known : the compressors of the strategy, see `coding.codings`.
    """

    def __init__(
        self,
        workers: int,
        rank: int,
        seed: int = 0,
        collective: str = "auto",
        known: Sequence[tuple[type[Message], Coding]] = (),
    ) -> None:
        super().__init__(workers, seed, collective=collective, transport=Blank(workers, rank))
        self._known = known

    @property
    def wire(self) -> Blank:
        """The transport, with what has been posted."""
        assert isinstance(self.transport, Blank)
        return self.transport

    @property
    def step(self) -> int:
        """The clock, which notes who reads it."""
        reader = sys._getframe(1).f_locals.get("self")
        if isinstance(reader, Stateful) and _unruled(reader):
            self.wire.clocked[type(reader).__name__] = None
        return self.context.step

    @step.setter
    def step(self, value: int) -> None:
        self.context.step = value

    def _billed(self, kind: str, message: Message, *, wire: float, messages: float, senders: float = 1.0) -> Message:
        message = super()._billed(kind, message, wire=wire, messages=messages, senders=senders)
        entry = self.ledger.rows.pop()
        wired = self.wire
        wired.homes.append(self._home)
        wired.operations.append(
            Operation(
                *entry,
                matrix=wired.matrix if kind == "mix" else None,
                slot=self.path[0],
                early=wired.early,
                bucketed=wired.bucketed,
                waited=-1,
                posted=wired.now,
                coding=matching(self._known, message),
                coordinates=message.d,
            )
        )
        return message

    def _mixing(self, matrix: MixingMatrix, keep: Sums | None) -> MixPlan:
        """Bill a mixing; each row keeps what it has."""
        if matrix.n != self.n:
            raise ValueError(
                f"the topology must connect the run's {self.n} workers, got one of {matrix.n}: make both equal"
            )
        self.wire.matrix, plans = matrix, self.wire.plans
        if matrix not in plans:
            degrees, stay = matrix.out_degrees, InPlace.of([[(0, 1.0)]])
            out_degree, senders = float(degrees.mean()), float((degrees > 0).mean())
            plans[matrix] = MixPlan(stay, stay, {}, {}, out_degree, senders, int(matrix.in_degrees.max()), [[]])
        return plans[matrix]

    def _handle(self, finish: Callable[[], T]) -> Handle[T]:
        """The handle of the last operation, which notes the step in which it is waited for."""
        wire, index = self.wire, len(self.wire.operations) - 1

        def wait() -> T:
            wire.operations[index] = wire.operations[index]._replace(waited=wire.now)
            return finish()

        return super()._handle(wait)


def _unruled(part: Stateful) -> bool:
    """Whether nothing says after how many steps a part does the same again: no `timetable` of its own and no
    topology. What is in the package is held to the profile law.
    """
    kind = type(part)
    has_rule = kind.timetable is not Stateful.timetable
    has_topology = any(isinstance(value, Topology) for value in vars(part).values())
    return not (has_rule or has_topology or kind.__module__.startswith("commeff."))
