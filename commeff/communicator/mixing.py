"""Mixing rows by a sparse matrix at memory speed, and who has to send what to whom for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from commeff.communicator.wire.transport import Transport
from commeff.compressors import DenseMessage, Message
from commeff.topologies import MixingMatrix

SparseRows = Sequence[tuple[Sequence[int], Sequence[float]]]

# Columns mixed at a time: a few rows of this many numbers fit in cache, and the cost of starting an operation no longer
# shows.
WIDTH = 2**18


@dataclass(frozen=True)
class RowUpdate:
    """How one row is overwritten: `own` times itself, plus weight times other rows or, where those are overwritten
    already, kept copies.
    """

    keep: int | None  # scratch slot for a copy of the old row, if a later row needs it
    own: float
    terms: tuple[tuple[bool, int, float], ...]  # (is a kept copy, slot or row, weight)


@dataclass(frozen=True)
class InPlace:
    """x <- W x in the memory of x, row after row, with as few kept copies as the order allows (a ring needs 3, whatever
    n).

    >>> swap = InPlace.of([((0, 1), (0.5, 0.5)), ((0,), (1.0,))])
    >>> swap.run(torch.tensor([[0.0, 4.0], [2.0, 0.0]])).tolist()
    [[1.0, 2.0], [0.0, 4.0]]
    """

    rows: tuple[RowUpdate, ...]
    slots: int

    @staticmethod
    def of(rows: SparseRows) -> InPlace:
        """The program for W given as (columns, weights) of each row."""
        last_need = {j: i for i, (ids, _) in enumerate(rows) for j in ids if j < i}
        program, free, slots = [], list[int](), 0
        slot_of: dict[int, int] = {}
        for i, (ids, weights) in enumerate(rows):
            if i in last_need:
                if not free:
                    free.append(slots)
                    slots += 1
                slot_of[i] = free.pop()
            own = sum(weight for j, weight in zip(ids, weights, strict=True) if j == i)
            others = [(j, weight) for j, weight in zip(ids, weights, strict=True) if j != i]
            terms = tuple((True, slot_of[j], weight) if j < i else (False, j, weight) for j, weight in others)
            program.append(RowUpdate(slot_of.get(i), own, terms))
            free.extend(slot_of.pop(j) for j, _ in others if j < i and last_need[j] == i)
        return InPlace(tuple(program), slots)

    def run(self, x: Tensor, more: Sequence[Tensor] = ()) -> Tensor:
        """Overwrite x (n, d), block by block of columns. W's columns n, n + 1, ... stand for the rows of `more`."""
        width = max(1, min(WIDTH, x.shape[1]) if x.device.type == "cpu" else x.shape[1])
        scratch = x.new_empty(self.slots, width)
        for start in range(0, x.shape[1], width):
            block = x[:, start : start + width]
            fresh, copies = block.unbind(), scratch[:, : block.shape[1]].unbind()
            sources = (*fresh, *(row[start : start + width] for row in more))
            for target, row in zip(fresh, self.rows, strict=True):
                if row.keep is not None:
                    copies[row.keep].copy_(target)
                _overwrite(target, row, sources, copies)
        return x


def _overwrite(target: Tensor, row: RowUpdate, fresh: Sequence[Tensor], copies: Sequence[Tensor]) -> None:
    """target <- own target + sum of the terms: with positive weights, one running mean a term and at last their sum."""
    sources = [((copies if is_kept else fresh)[j], weight) for is_kept, j, weight in row.terms]
    if row.own <= 0 or min((weight for _, weight in sources), default=1.0) <= 0:
        _scale(target, row.own)
        for source, weight in sources:
            target.add_(source, alpha=weight)
        return
    total = row.own
    for source, weight in sources:
        total += weight
        target.lerp_(source, weight / total)
    _scale(target, total)


def _scale(target: Tensor, factor: float) -> None:
    if factor == 0:
        target.zero_()
    elif abs(factor - 1) > 1e-15:
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
    weights: Tensor  # (w, rows that come in)
    out_degree: float  # mean over all workers of how many others receive its message
    senders: float  # share of the workers whose message anybody else receives
    ids: Sequence[int] = ()  # of the workers whose rows `all` numbers
    hears: SparseRows = ()  # (ids, weights) of each own row
    widest: int = 0  # the most others that any worker hears

    @staticmethod
    def plan(matrix: MixingMatrix, bounds: Sequence[int], rank: int) -> MixPlan:
        """Worker ids bounds[r] .. bounds[r + 1] - 1 live at process r."""
        n = bounds[-1]
        if matrix.n != n:
            raise ValueError(f"the topology must connect the run's {n} workers, got one of {matrix.n}: make both equal")
        owner = [r for r in range(len(bounds) - 1) for _ in range(bounds[r], bounds[r + 1])]
        mine = range(bounds[rank], bounds[rank + 1])
        local: list[tuple[list[int], list[float]]] = [([], []) for _ in mine]
        needed: dict[int, set[int]] = {}
        rows_of: dict[int, set[int]] = {}
        for i, (ids, weights) in enumerate(matrix.rows):
            for j, weight in zip(ids, weights, strict=True):
                if owner[i] == owner[j] == rank:
                    local[i - mine.start][0].append(j - mine.start)
                    local[i - mine.start][1].append(weight)
                elif owner[i] == rank:
                    rows_of.setdefault(owner[j], set()).add(j)
                elif owner[j] == rank:
                    needed.setdefault(owner[i], set()).add(j - mine.start)
        order = [j for peer in sorted(rows_of) for j in sorted(rows_of[peer])]
        column = {j: c for c, j in enumerate(order)}
        remote = torch.zeros(len(mine), len(order), dtype=torch.float64)
        whole = [(list(ids), list(weights)) for ids, weights in local]
        for i in mine:
            for j, weight in zip(*matrix.rows[i], strict=True):
                if j in column:
                    remote[i - mine.start, column[j]] = weight
                    whole[i - mine.start][0].append(len(mine) + column[j])
                    whole[i - mine.start][1].append(weight)
        return MixPlan(
            local=InPlace.of(local),
            all=InPlace.of(whole),
            outgoing={peer: sorted(rows) for peer, rows in sorted(needed.items())},
            incoming={peer: len(rows_of[peer]) for peer in sorted(rows_of)},
            weights=remote,
            out_degree=float(matrix.out_degrees.mean()),
            senders=float((matrix.out_degrees > 0).mean()),
            ids=(*mine, *order),
            hears=matrix.rows[mine.start : mine.stop],
            widest=int(matrix.in_degrees.max()),
        )

    @cached_property
    def _heard(self) -> tuple[Tensor, Tensor]:
        """(w, k) the rows, numbered as in `all`, that each own row hears, and their weights; then itself, at 0."""
        places = {worker: place for place, worker in enumerate(self.ids)}
        rows, shares = [], []
        for i, (ids, weights) in enumerate(self.hears):
            others = [(places[j], weight) for j, weight in zip(ids, weights, strict=True) if places[j] != i]
            padded = others + [(i, 0.0)] * (self.widest - len(others))
            rows.append([place for place, _ in padded])
            shares.append([weight for _, weight in padded])
        shape = (len(self.hears), self.widest)
        return torch.tensor(rows).long().view(shape), torch.tensor(shares, dtype=torch.float64).view(shape)

    def post_each(self, message: Message, transport: Transport) -> Callable[[], Neighbours]:
        """Sends the same rows as `post`; gives what comes in one by one."""
        arrive = self._exchange(message, transport)

        def wait() -> Neighbours:
            rows = torch.cat([message.decode(), *(part.decode() for part in arrive())])
            places, weights = self._heard
            return Neighbours(rows[places.to(rows.device)], weights.to(rows))

        return wait

    def post(self, message: Message, transport: Transport, out: Tensor | None) -> Callable[[], Tensor]:
        """Sends the rows that others need; gives the mixed rows, in the memory of `out` if there is one."""
        arrive = self._exchange(message, transport)

        def wait() -> Tensor:
            own, received = message.decode(), arrive()
            mixed = own.clone(memory_format=torch.contiguous_format) if out is None else out
            if out is not None and out.data_ptr() != own.data_ptr():
                out.copy_(own)
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
