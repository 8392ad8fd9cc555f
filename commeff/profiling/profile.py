"""`profile`: a strategy played on tensors without memory, step by step, until it repeats."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from commeff.compressors import Layout
from commeff.core import Strategy, overlap
from commeff.optimizers.curvature import Flat
from commeff.profiling.coding import ASSUMED, Coding, codings
from commeff.profiling.live import depends_on_data, host_bytes, measure_memory, most, preserved
from commeff.profiling.rehearsal import Operation, Rehearsal

LONGEST = 2048  # steps of a cycle that are played; what repeats later, or never, is sampled
SLOTS = ("gradients", "parameters")
BESIDE = 64  # bytes of a message beside the numbers, such as a push-sum weight
SERVER = ("to_server", "from_server")
NEVER = sys.maxsize
SAMPLED = 64  # steps of something that never repeats, or more, of whole beats
LATEST = 256  # steps after which nothing sent is still under way
SMALL = 1 << 24  # numbers up to which code that reads values is played on real tensors


@dataclass(frozen=True)
class Stretch:
    """Steps from `begin` on, of which those from `repeats` on come again every `period`."""

    begin: int
    repeats: int
    period: int


@dataclass(frozen=True)
class Profile:
    """What a strategy sends and remembers. Made by `profile`.

    Attributes
    ----------
    workers : n.
    stretches : of the run, first to last; the last never ends.
    steps : the operations of every step that was played.
    memory_bytes : of one worker, by part of the strategy: the most that it holds between two steps, beside x and the
        gradient.
    host_bytes : those of them that lie in the host's memory, if x is on a GPU.
    inside : of every step that was played, the bytes that this rank sends to those that hold other pieces of its row,
        by axis.
    server_bytes : what the process that hosts the server's row holds more than others.
    exact : whether a run's ledger says the same. If not, `note` says what was assumed, and whether it is a bound.
    """

    workers: int
    stretches: tuple[Stretch, ...]
    steps: Mapping[int, tuple[Operation, ...]]
    memory_bytes: Mapping[str, int]
    server_bytes: int = 0
    exact: bool = True
    note: str = ""
    host_bytes: int = 0
    inside: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    @property
    def period(self) -> int:
        """After how many steps the operations come again, in the end."""
        return self.stretches[-1].period

    @property
    def first(self) -> int:
        """The step from which on they do."""
        return self.stretches[-1].repeats

    def played(self, step: int) -> int:
        """The step that stands for this one."""
        stretch = next(s for s in reversed(self.stretches) if s.begin <= step)
        return step if step < stretch.repeats else stretch.repeats + (step - stretch.repeats) % stretch.period

    def operations(self, step: int) -> tuple[Operation, ...]:
        """The operations of a step, in order."""
        played = self.played(step)
        return tuple(operation.moved(step - played) for operation in self.steps[played])

    @cached_property
    def typical(self) -> list[Operation]:
        """The operations of a period, once they repeat, in order."""
        return [operation for k in range(self.first, self.first + self.period) for operation in self.steps[k]]

    @property
    def payload_bytes(self) -> float:
        """Mean per step and worker of what the method must send, once it repeats."""
        return sum(operation.payload_bytes for operation in self.typical) / self.period

    @property
    def wire_bytes(self) -> float:
        """Mean per step and worker of what the collectives move for it, once it repeats."""
        return sum(operation.wire_bytes for operation in self.typical) / self.period


def profile(
    strategy: Strategy,
    layout: Layout,
    workers: int,
    *,
    seed: int = 0,
    collective: str = "auto",
    dtype: torch.dtype = torch.float32,
) -> Profile:
    """What a strategy sends in each step and what it remembers, by playing it as one process of n.

    It is started and stepped on meta tensors, which have shapes and no memory, so that any size takes milliseconds. All
    of its transforms run, by the clock, at the learning rate of the first steps (a rate of exactly 0, in which some
    methods send nothing, is not looked for). The strategy is afterwards as it was before.

    Parameters
    ----------
    strategy : any, plug-ins too.
    layout : of the model, or `Layout.flat(d)`.
    workers : n, one a process.
    seed, collective : as of the `Communicator` of the run.
    dtype : of parameters and gradients.

    Returns
    -------
    Profile
        Exact where sizes follow from shapes and the clock. Where values decide (`data_dependent`), it is a bound; code
        that cannot run without values is played on random numbers of the same layout. Both are said in `note`.

    Raises
    ------
    ValueError
        If the strategy refuses the layout or the workers, or needs values and is too large to be played with them.
    """
    run = _Play(strategy, layout, workers, seed, collective, dtype)
    with preserved(strategy):
        try:
            return run.result("meta")
        except (NotImplementedError, RuntimeError, TypeError) as error:
            if layout.d > SMALL:
                reason = " ".join(str(error).split())[:200]
                raise ValueError(
                    f"a profile at {layout.d:,} coordinates needs code that runs on meta tensors, but a part of this "
                    f"strategy reads values ({type(error).__name__}: {reason}); where x.is_meta, give a result of the "
                    f"largest shape and set data_dependent=True in its traits, or profile at most {SMALL:,} coordinates"
                ) from error
    with preserved(strategy):
        return run.result("cpu")


class _Play:
    """One strategy at one size."""

    def __init__(
        self, strategy: Strategy, layout: Layout, workers: int, seed: int, collective: str, dtype: torch.dtype
    ) -> None:
        self.strategy, self.layout, self.workers = strategy, layout, workers
        self.seed, self.collective, self.dtype = seed, collective, dtype
        self._known = [*codings(strategy)]

    def result(self, device: str) -> Profile:
        """Play the last process, and, if the server's row is in use, the one that hosts it."""
        self._begin(device, rank=self.workers - 1)
        self._cycle = self.strategy.timetable().period  # once started: blocks have theirs from then on
        stretches = list(self._stretches())
        clocked = self._communicator.wire.clocked
        if clocked and self._cycle is not None:
            self._cycle = None
            self._begin(device, rank=self.workers - 1)
            stretches = list(self._stretches())
        steps, notes = self._coded(self._steps(stretches), stretches[-1]), list[str]()
        memory, data = self._held, depends_on_data(self.strategy)
        host, inside = host_bytes(self.strategy, memory), self._inside
        if clocked:
            notes.append(
                f"no period in `timetable` of {' and '.join(clocked)}, whose steps are not all alike: bytes are means "
                f"over {stretches[-1].period} steps"
            )
        elif self._cycle is None or self._cycle > LONGEST:
            notes.append(f"it does not repeat within {LONGEST} steps: means are those of {stretches[-1].period} steps")
        if self._endless:
            notes.append(f"its first messages do not end within {LONGEST} steps: all are taken to be like the last")
        if data is not None:
            notes.append(f"the messages of {data} depend on values: the profile is an upper bound")
        elif device != "meta":
            notes.append("played on random numbers, since a part of it reads values")
        server = 0
        if any(op.kind in SERVER for operations in steps.values() for op in operations):
            self._begin(device, rank=0)
            self._play(0)
            self._play(1)
            server = sum(self._held.values()) - sum(memory.values())
        sent = self.workers, tuple(stretches), steps
        return Profile(*sent, memory, max(0, server), not notes, "; ".join(notes), host, inside)

    def _begin(self, device: str, rank: int) -> None:
        self._communicator = Rehearsal(self.workers, rank, self.seed, self.collective, self._known)
        self._communicator.context.losses = torch.ones(1)
        self._x, self._gradient = (self._rows(device) for _ in range(2))
        self._bounds: dict[int, tuple[int, int]] = {}  # of each step's operations among all
        self._inside: dict[int, Counter[str]] = {}
        self._held: dict[str, int] = {}
        self._endless = False
        self.strategy.start(self._x, self.layout, self._communicator)

    def _steps(self, stretches: Sequence[Stretch]) -> dict[int, tuple[Operation, ...]]:
        """The operations of every step of the stretches, once all that they sent has been waited for."""
        bounds, posted = dict(self._bounds), self._communicator.wire.operations
        last = bounds[stretches[-1].repeats + stretches[-1].period - 1][1]
        for step in range(max(bounds) + 1, max(bounds) + 1 + LATEST):
            if all(operation.waited >= 0 for operation in posted[:last]):
                break
            self._play(step)
        sent: dict[int, list[int]] = {step: [] for step in bounds}
        for i, operation in enumerate(posted):  # by its own clock: a delayed transform goes on with an earlier step
            sent.get(operation.step, []).append(i)
        return {step: self._together(operations) for step, operations in sent.items()}

    def _coded(self, steps: dict[int, tuple[Operation, ...]], last: Stretch) -> dict[int, tuple[Operation, ...]]:
        """With what is assumed of coding where a slot sends other than whole vectors, and no compressor makes them."""
        typical = [op for k in range(last.repeats, last.repeats + last.period) for op in steps[k]]
        for slot in SLOTS:
            sent = [op for op in typical if op.slot == slot]
            total, vector = sum(op.payload_bytes for op in sent), self.dtype.itemsize * self.layout.d
            if not sent or any(op.coding for op in sent) or total % vector <= BESIDE * len(sent):
                continue
            for step, operations in steps.items():
                first = next((i for i, op in enumerate(operations) if op.slot == slot), None)
                if first is not None:
                    changed = operations[first]._replace(coding=Coding("", ASSUMED), coordinates=self.layout.d)
                    steps[step] = (*operations[:first], changed, *operations[first + 1 :])
        return steps

    def _together(self, indices: Sequence[int]) -> tuple[Operation, ...]:
        """Operations of one step; those with a server know how many workers share its row."""
        wire = self._communicator.wire
        operations = [wire.operations[i] for i in indices]
        homes = {wire.homes[i] for i, op in zip(indices, operations, strict=True) if op.kind in SERVER}
        return tuple(op._replace(shards=len(homes)) if op.kind in SERVER else op for op in operations)

    def _sent(self) -> Counter[str]:
        """What this rank has sent so far to those that hold other pieces of its row, by axis."""
        return Counter({ranks.name: ranks.bytes for ranks in self.layout.peers})

    def _rows(self, device: str) -> Tensor:
        make = torch.zeros if device == "meta" else torch.randn
        return make(1, self.layout.d, dtype=self.dtype, device=device)

    def _stretches(self) -> Iterator[Stretch]:
        """Play what lies between two changes: first messages, then a cycle and, to be sure, its repetition."""
        cycle = self._cycle
        timetable = self.strategy.timetable()
        sample = timetable.sample
        period = min(sample * -(-SAMPLED // sample) if cycle is None else cycle, LONGEST)
        changes = [0, *sorted(step for step in timetable.changes if step > 0)]
        for begin, end in pairwise([*changes, NEVER]):
            repeats = begin
            self._play(begin)
            while not self.strategy.timetable().settled and repeats + 1 < end and repeats - begin < LONGEST:
                repeats += 1
                self._play(repeats)
            self._endless = end == NEVER and repeats - begin == LONGEST
            sure = cycle is None
            while not sure and repeats + 2 * period <= end and repeats - begin <= LONGEST:
                self._play_to(repeats + 2 * period)
                sure = self._same(repeats, period)
                repeats += 0 if sure else period
            if end < NEVER and not sure:
                repeats = end
            self._play_to(min(repeats + period, end))
            yield Stretch(begin, repeats, period)

    def _same(self, first: int, period: int) -> bool:
        """Whether two cycles in a row send the same."""
        posted = self._communicator.wire.operations

        def shift(step: int, moved: int) -> list[Operation]:
            a, b = self._bounds[step]
            return [operation.moved(moved)._replace(waited=0) for operation in posted[a:b]]

        return all(shift(k, period) == shift(k + period, 0) for k in range(first, first + period))

    def _play_to(self, end: int) -> None:
        for step in range(max(self._bounds) + 1, end):
            self._play(step)

    def _play(self, step: int) -> None:
        """One step, in which x stays where it is: the local step says nothing to others, and only makes its memory."""
        communicator, strategy = self._communicator, self.strategy
        wire = communicator.wire
        begin, before = len(wire.operations), self._sent()
        communicator.step = wire.now = step
        wire.early = True
        strategy.post(self._x, communicator)
        wire.early, wire.bucketed = False, bool(overlap.awaited(strategy))
        prepared = strategy.prepare(self._x, self._gradient, communicator, Flat())
        gradient = strategy.gradients(prepared, communicator.child("gradients"))
        if len(self._bounds) < 2:
            strategy.local(self._x.clone(), gradient)
        wire.bucketed = False
        strategy.parameters(self._x.clone(), communicator.child("parameters"))
        self._bounds[step], self._inside[step] = (begin, len(wire.operations)), self._sent() - before
        if len(wire.operations) > begin or len(self._bounds) <= 2:  # in other steps it holds no more than before
            self._held = most(self._held, measure_memory(strategy, (self._x, self._gradient)))
