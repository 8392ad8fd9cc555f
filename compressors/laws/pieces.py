"""Rows that lie in pieces on several ranks: each compresses its own to its piece of the whole row's message."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError
from typing import Literal, TypeVar

import torch
from torch import Tensor

from commeff.compressors.base import Compressor
from commeff.compressors.laws.problems import require
from commeff.compressors.layout import Layout, total
from commeff.compressors.places import Places, Stretches
from commeff.compressors.random import WorkerRandom

WHOLE = Layout.of([("matrix", (6, 4)), ("vector", (5,))])


def check_pieces(compressor: Compressor) -> None:
    """Two ranks that each have half of the columns of a matrix and a copy of a vector decode pieces of one message."""
    if not compressor.exact_on_pieces:
        return
    vectors = WorkerRandom(1, range(2)).normal(WHOLE.d, dtype=torch.float64)
    whole = compressor.bind(WHOLE).compress(vectors, _stream(None)).decode()
    pieces = on_threads((2,), lambda axes: _piece(compressor, vectors, axes))
    for columns, decoded in pieces:
        expected = whole[:, columns]
        require(
            torch.allclose(decoded, expected, rtol=1e-12, atol=1e-12, equal_nan=True),
            f"{compressor}: on a piece of a row it differs by {float((decoded - expected).abs().max()):.1e}: draw by "
            "random.bits, uniform or normal of all columns, and take scales by bind(layout), or say scope = 'whole'",
        )
    first, second = (decoded[:, -5:] for _, decoded in pieces)
    require(torch.equal(first, second), f"{compressor}: two ranks read another number of what both hold")


@dataclass(frozen=True)
class HalfLayout(Layout):
    """The layout of half of the matrix's columns, and of the vector, which the other rank has too."""

    rank: int = 0
    peers: tuple[Thread, ...] = ()

    @classmethod
    def on(cls, axes: tuple[Thread, ...]) -> HalfLayout:
        """The layout as a rank has it."""
        return cls(Layout.of([("matrix", (6, 2)), ("vector", (5,))]).fields, 0, axes[0].rank, axes)

    @property
    def whole(self) -> Layout:
        return WHOLE

    @property
    def places(self) -> Places:
        return Places([Stretches(2 * self.rank, 2, 4, 6), Stretches(24, 5)])

    def row_sum(self, vectors: Tensor, of: Callable[[Tensor], Tensor] = total) -> Tensor:
        return self.peers[0].reduce(of(vectors[:, :12]) + of(vectors[:, 12:]) / 2, "sum")

    def row_max(self, largest: Tensor) -> Tensor:
        return self.peers[0].reduce(largest, "max")


def _piece(compressor: Compressor, vectors: Tensor, axes: tuple[Thread, ...]) -> tuple[Tensor, Tensor]:
    layout = HalfLayout.on(axes)
    columns = layout.places.of(0, layout.d)
    return columns, compressor.bind(layout).compress(vectors[:, columns], _stream(layout.places)).decode()


def _stream(places: Places | None) -> WorkerRandom:
    return WorkerRandom(0, [0, 1], places=places)


T = TypeVar("T")


class Meeting:
    """The place where threads give each other tensors, which `size` ranks share."""

    def __init__(self, size: int) -> None:
        self.slots: list[Tensor | None] = [None] * size
        self.barrier = Barrier(size)


class Thread:
    """One of the ranks that meet, as a layout wants it (`Peers`)."""

    name, bytes = "thread", 0.0  # nothing is sent

    def __init__(self, rank: int, meeting: Meeting) -> None:
        self.rank, self._meeting = rank, meeting

    def reduce(self, x: Tensor, op: Literal["sum", "max"]) -> Tensor:
        """The sum, or the largest, of what all have."""
        self._meeting.slots[self.rank] = x
        self._meeting.barrier.wait()
        values = torch.stack([slot for slot in self._meeting.slots if slot is not None])
        self._meeting.barrier.wait()
        return values.sum(0) if op == "sum" else values.amax(0)


def on_threads(degrees: tuple[int, ...], function: Callable[[tuple[Thread, ...]], T]) -> list[T]:
    """What the function gives at each rank of a mesh, which it gets as the rank's place on each axis.

    >>> on_threads((2,), lambda axes: axes[0].reduce(torch.tensor(1.0 + axes[0].rank), "sum").item())
    [3.0, 3.0]
    """
    size = math.prod(degrees)
    places = [_unravel(rank, degrees) for rank in range(size)]
    groups = {(axis, *_others(place, axis)) for place in places for axis in range(len(degrees))}
    meetings = {group: Meeting(degrees[group[0]]) for group in groups}

    def member(place: tuple[int, ...]) -> T:
        axes = tuple(Thread(place[axis], meetings[axis, *_others(place, axis)]) for axis in range(len(degrees)))
        try:
            return function(axes)
        except BaseException:
            for meeting in meetings.values():
                meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(member, place) for place in places]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]


def _unravel(rank: int, degrees: tuple[int, ...]) -> tuple[int, ...]:
    place: list[int] = []
    for degree in reversed(degrees):
        rank, coordinate = divmod(rank, degree)
        place.insert(0, coordinate)
    return tuple(place)


def _others(place: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return place[:axis] + place[axis + 1 :]
