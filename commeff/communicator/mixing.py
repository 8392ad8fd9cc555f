"""Mixing rows by a sparse matrix at memory speed, and who has to send what to whom for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from commeff.communicator.wire.transport import Transport
from commeff.compressors import DenseMessage, Message
from commeff.compressors.compiled import compiled
from commeff.topologies import MixingMatrix

Row = Sequence[tuple[int, float]]  # column and weight of what a row of a sparse matrix holds

# About how many columns are mixed at a time: a few rows of them fit in cache, and starting an operation costs little.
LEAST, MOST, KEPT = 2**15, 2**18, 2**21  # KEPT: in all kept rows together
AGAIN, LONGEST = 8, 512  # after how many runs, and up to how many terms, a program is worth the seconds of the compiler


@dataclass(frozen=True)
class RowUpdate:
    """How one row is overwritten by a weighted sum of itself, other rows and, where those are overwritten already, kept
    copies.

    With positive weights it becomes the running mean of the terms so far, term by term, and at last `factor` times
    that. Else it is multiplied by `factor`, and the terms are added.
    """

    keep: int | None  # scratch slot for a copy of the old row, if a later row needs it
    positive: bool
    factor: float
    terms: tuple[tuple[bool, int, float], ...]  # (is a kept copy, slot or row, weight, in the mean so far or as it is)


@dataclass(frozen=True)
class InPlace:
    """x <- W x in the memory of x, row after row, with as few kept copies as the order allows (a ring needs 3, whatever
    n).

    >>> swap = InPlace.of([[(0, 0.5), (1, 0.5)], [(0, 1.0)]])
    >>> swap.run(torch.tensor([[0.0, 4.0], [2.0, 0.0]])).tolist()
    [[1.0, 2.0], [0.0, 4.0]]
    """

    rows: tuple[RowUpdate, ...]
    slots: int

    @staticmethod
    def of(rows: Sequence[Row]) -> InPlace:
        """The program for the rows of W."""
        last_need = {j: i for i, row in enumerate(rows) for j, _ in row if j < i}
        program, free, slots = [], list[int](), 0
        slot_of: dict[int, int] = {}
        for i, row in enumerate(rows):
            if i in last_need:
                if not free:
                    free.append(slots)
                    slots += 1
                slot_of[i] = free.pop()
            diagonal, others = sum(weight for j, weight in row if j == i), [(j, weight) for j, weight in row if j != i]
            positive = diagonal > 0 and all(weight > 0 for _, weight in others)
            factor, terms = diagonal, []
            for j, weight in others:
                factor += weight if positive else 0.0
                terms.append((j < i, slot_of[j] if j < i else j, weight / factor if positive else weight))
            program.append(RowUpdate(slot_of.get(i), positive, factor, tuple(terms)))
            free.extend(slot_of.pop(j) for j, _ in others if j < i and last_need[j] == i)
        return InPlace(tuple(program), slots)

    @cached_property
    def _runs(self) -> list[float]:
        """How many there were; -inf, if none may be compiled. What has one term a row is as fast without."""
        terms = sum(len(row.terms) for row in self.rows)
        fused = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")  # elsewhere plain lerps may round twice
        return [0 if fused and len(self.rows) < terms <= LONGEST else -math.inf]

    def run(self, x: Tensor, more: Sequence[Tensor] = ()) -> Tensor:
        """Overwrite x (n, d). W's columns n, n + 1, ... stand for the rows of `more`."""
        self._runs[0] += 1
        may = self._runs[0] > AGAIN and x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        if len(x) > 0:
            (compiled(_overwrite) if may else _overwrite)(*x.unbind(), *more, self)
        return x


def _overwrite(*arguments: Any) -> None:
    """The rows of a program, which comes last, block by block of columns; the compiler makes one pass over them."""
    *rows, program = arguments
    d, compiling = len(rows[0]), torch.compiler.is_dynamo_compiling()
    tiled = rows[0].device.type == "cpu" and not compiling
    width = max(LEAST, min(MOST, KEPT // max(program.slots, 1))) if tiled else d + 1
    scratch = rows[0].new_empty(program.slots, min(d, width + width // 2)).unbind()
    for start, stop in pairwise([*range(0, max(d - width // 2, 1), width), d]):  # the last is half to 1.5 times as wide
        copies, sources = [row[: stop - start] for row in scratch], [row[start:stop] for row in rows]
        for target, row in zip(sources, program.rows, strict=False):
            if row.keep is not None:
                copies[row.keep] = target.clone() if compiling else copies[row.keep].copy_(target)
            if not row.positive:
                _scale(target, row.factor)
            for is_kept, j, weight in row.terms:
                source = copies[j] if is_kept else sources[j]
                if compiling:
                    target.copy_(_fused(target, source, weight, row.positive))
                else:
                    target.lerp_(source, weight) if row.positive else target.add_(source, alpha=weight)
            if row.positive and abs(row.factor - 1) > 1e-15:
                target.mul_(row.factor)


# All rows are one loop, with no sum on the way in memory.
_overwrite.options = {"max_fusion_size": 2 * LONGEST, "realize_reads_threshold": LONGEST}  # type: ignore[attr-defined]


def _fused(target: Tensor, source: Tensor, weight: float, mean: bool) -> Tensor:
    """What lerp and add are on a CPU, bit for bit: their product is not rounded before it is added."""
    from torch._inductor.inductor_prims import fma

    factor = target.new_full((), weight)
    if not mean:
        return fma(source, factor, target)
    if weight < 0.5 - torch.finfo(target.dtype).eps / 8:  # rounded to this type it is less than a half
        return fma(source - target, factor, target)
    return fma(source - target, factor - 1, source)


def _scale(target: Tensor, factor: float) -> None:
    """Infinity times 0 is 0 here: a weight of 0 takes nothing."""
    if factor == 0:
        target.zero_()
    elif factor != 1:
        target.mul_(factor)


@dataclass(frozen=True)
class Neighbours:
    """What the hosted workers hear, one by one, in the order of the senders.

    Attributes
    ----------
    vectors : (w, k, d)
        The decoded messages of the others that each receives; k is the largest number of them over all n workers. Who
        receives fewer has its own vector in their place.
    weights : (w, k)
        W[i, j] of each; 0 for its own vector. 1 - their sum is W[i, i], where rows sum to 1.
    """

    vectors: Tensor
    weights: Tensor


@dataclass(frozen=True)
class MixPlan:
    """What one process needs for a mixing: how its own rows mix, which rows go to which process, and the weights of
    what comes in.
    """

    local: InPlace
    all: InPlace  # the same with the rows that come in, numbered after our own in the order of `incoming`
    outgoing: dict[int, list[int]]  # peer -> local rows it needs
    incoming: dict[int, int]  # peer -> how many rows come from it
    out_degree: float  # mean over all workers of how many others receive its message
    senders: float  # share of the workers whose message anybody else receives
    widest: int  # the most others that any worker hears
    hears: Sequence[Row]  # what each own row hears, numbered as in `all`, in the order of the senders

    @staticmethod
    def plan(matrix: MixingMatrix, bounds: Sequence[int], rank: int) -> MixPlan:
        """Worker ids bounds[r] .. bounds[r + 1] - 1 live at process r."""
        n = bounds[-1]
        if matrix.n != n:
            raise ValueError(f"the topology must connect the run's {n} workers, got one of {matrix.n}: make both equal")
        owner = [r for r in range(len(bounds) - 1) for _ in range(bounds[r], bounds[r + 1])]
        hosted = range(bounds[rank], bounds[rank + 1])
        others = sorted({j for i in hosted for j in matrix.rows[i][0]} - {*hosted})
        place = {j: k for k, j in enumerate((*hosted, *others))}
        hears = [[(place[j], weight) for j, weight in zip(*matrix.rows[i], strict=True)] for i in hosted]
        needed: dict[int, set[int]] = {}
        for j in hosted:
            for i in matrix.columns[j][0]:
                if owner[i] != rank:
                    needed.setdefault(owner[i], set()).add(place[j])
        return MixPlan(
            local=InPlace.of([[term for term in row if term[0] < len(hosted)] for row in hears]),
            all=InPlace.of([sorted(row) for row in hears]),
            outgoing={peer: sorted(rows) for peer, rows in sorted(needed.items())},
            incoming=dict(Counter(owner[j] for j in others)),
            out_degree=float(matrix.out_degrees.mean()),
            senders=float((matrix.out_degrees > 0).mean()),
            widest=int(matrix.in_degrees.max()),
            hears=hears,
        )

    @cached_property
    def weights(self) -> Tensor:
        """(w, rows that come in) of each of these, float64."""
        hosted = len(self.hears)
        weights = torch.zeros(hosted, sum(self.incoming.values()), dtype=torch.float64)
        for i, row in enumerate(self.hears):
            for place, weight in row:
                if place >= hosted:
                    weights[i, place - hosted] = weight
        return weights

    @cached_property
    def _neighbours(self) -> tuple[Tensor, Tensor]:
        """(w, k) the rows, numbered as in `all`, that each own row hears, and their weights; then itself, at 0."""
        rows = [[term for term in row if term[0] != i] for i, row in enumerate(self.hears)]
        padded = [row + [(i, 0.0)] * (self.widest - len(row)) for i, row in enumerate(rows)]
        terms = torch.tensor(padded, dtype=torch.float64).view(len(rows), self.widest, 2)
        return terms[..., 0].long(), terms[..., 1]

    def post_each(self, message: Message, transport: Transport) -> Callable[[], Neighbours]:
        """Sends the same rows as `post`; gives what comes in one by one."""
        arrive = self._exchange(message, transport)

        def wait() -> Neighbours:
            rows = torch.cat([message.decode(), *(part.decode() for part in arrive())])
            places, weights = self._neighbours
            return Neighbours(rows[places.to(rows.device)], weights.to(rows))

        return wait

    def post(self, message: Message, transport: Transport, out: Tensor | None) -> Callable[[], Tensor]:
        """Sends the rows that others need; gives the mixed rows, in the memory of `out` if there is one."""
        arrive = self._exchange(message, transport)

        def wait() -> Tensor:
            decoded, received = message.decode(), arrive()
            mixed = decoded.clone(memory_format=torch.contiguous_format) if out is None else out
            if out is not None and out.data_ptr() != decoded.data_ptr():
                out.copy_(decoded)
            if received and isinstance(message, DenseMessage):
                return self.all.run(mixed, [row for part in received for row in part.decode()])
            self.local.run(mixed)
            first = 0
            for part in received:
                part.add_to(mixed, self.weights[:, first : first + part.rows].to(mixed))
                first += part.rows
            return mixed

        return wait

    def _exchange(self, message: Message, transport: Transport) -> Callable[[], list[Message]]:
        """Gives the messages that come in, in the order of `weights`."""
        if not self.outgoing and not self.incoming:
            return list
        rows = message.to_buffer()
        outgoing = {peer: _rows(rows, indices) for peer, indices in self.outgoing.items()}
        incoming = {peer: rows.new_empty(count, rows.shape[1]) for peer, count in self.incoming.items()}
        done = transport.exchange("mix", outgoing, incoming)
        return lambda: [message.from_buffer(part) for part in done().values()]


Plans = dict[int, tuple[MixingMatrix, MixPlan]]  # by the identity of the matrix


def remembered(plans: Plans, matrix: MixingMatrix, bounds: Sequence[int], rank: int) -> MixPlan:
    """`MixPlan.plan`, for matrices that come back: one is kept with its plan, so that its id stays its own."""
    if id(matrix) not in plans:
        if len(plans) > 64:
            plans.clear()
        plans[id(matrix)] = matrix, MixPlan.plan(matrix, bounds, rank)
    return plans[id(matrix)][1]


def _rows(rows: Tensor, indices: list[int]) -> Tensor:
    """Some rows, without a copy where they lie together; row by row is many times faster than by index."""
    if indices[-1] - indices[0] == len(indices) - 1:
        return rows[indices[0] : indices[-1] + 1]
    return torch.cat([rows[i : i + 1] for i in indices])
