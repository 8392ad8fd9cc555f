"""Ranks that hold pieces of a row, as threads of one process."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from typing import Literal, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Meeting:
    """Where threads give each other tensors: what `size` ranks share."""

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
        rank, here = divmod(rank, degree)
        place.insert(0, here)
    return tuple(place)


def _others(place: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return place[:axis] + place[axis + 1 :]
