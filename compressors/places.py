"""Where the columns of a piece lie in the whole vector."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Stretches(NamedTuple):
    """``times`` stretches of ``length`` neighbouring places, the first at ``start``, each ``stride`` after the last.

    A matrix of which a rank holds some rows is one stretch; one of which it holds some columns, a stretch for each row.
    """

    start: int
    length: int
    stride: int = 0
    times: int = 1

    @property
    def size(self) -> int:
        """The number of places."""
        return self.length * self.times

    def part(self, first: int, last: int) -> tuple[Stretches, ...]:
        """Those from the ``first`` to before the ``last``, which may be the end of a stretch, stretches and a begin.

        >>> for run in Stretches(10, 3, stride=5, times=4).part(1, 8):
        ...     print(run)
        Stretches(start=11, length=2, stride=0, times=1)
        Stretches(start=15, length=3, stride=0, times=1)
        Stretches(start=20, length=2, stride=0, times=1)
        """
        if first >= last:
            return ()
        (top, head), (bottom, tail) = divmod(first, self.length), divmod(last, self.length)
        if top == bottom:
            return (Stretches(self.start + top * self.stride + head, tail - head),)
        pieces = [Stretches(self.start + top * self.stride + head, self.length - head)] if head else []
        top += head > 0
        if top < bottom:
            stride = self.stride if bottom - top > 1 else 0
            pieces.append(Stretches(self.start + top * self.stride, self.length, stride, bottom - top))
        return (*pieces, *([Stretches(self.start + bottom * self.stride, tail)] if tail else []))


def part(runs: Sequence[Stretches], first: int, last: int) -> tuple[Stretches, ...]:
    """The places of columns [first, last) of those that ``runs`` are one after the other.

    >>> part([Stretches(0, 4), Stretches(10, 4)], 2, 6)
    (Stretches(start=2, length=2, stride=0, times=1), Stretches(start=10, length=2, stride=0, times=1))
    """
    stretches: list[Stretches] = []
    for run in runs:
        stretches += run.part(max(first, 0), min(last, run.size))
        first, last = first - run.size, last - run.size
    return tuple(stretches)


class Places:
    """Places of a whole vector, one for each column of a piece.

    Parameters
    ----------
    runs : sequence of Stretches
        Them in order.

    Examples
    --------
    >>> places = Places([Stretches(1, 2, stride=4, times=2), Stretches(20, 1)])
    >>> len(places), places.of(0, 5).tolist(), places.spans(2, 20)
    (5, [1, 2, 5, 6, 20], [(1, 4)])
    >>> [found.tolist() for found in places.find(torch.tensor([20, 3, 5]))]
    [[True, False, True], [4, 2, 2]]
    """

    def __init__(self, runs: Sequence[Stretches]) -> None:
        self.runs = tuple(run for run in runs if run.size)
        self._on: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return sum(run.size for run in self.runs)

    @cached_property
    def _stretches(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first place of each stretch, and its first column, with the number of columns at the end."""
        starts = [run.start + run.stride * np.arange(run.times, dtype=np.int64) for run in self.runs]
        lengths = [np.full(run.times, run.length, dtype=np.int64) for run in self.runs]
        none = np.zeros(1, dtype=np.int64)
        return np.concatenate([none[:0], *starts]), np.cumsum(np.concatenate([none, *lengths]))

    def first(self, column: int) -> int:
        """The place of a column; of the one after the last, the place after its."""
        return self.together(column, column + 1) if column < len(self) else self.after

    @cached_property
    def doubled(self) -> Places:
        """The places of vectors with two numbers for each of these columns."""
        return Places([Stretches(2 * run.start, 2 * run.length, 2 * run.stride, run.times) for run in self.runs])

    @property
    def after(self) -> int:
        """The place after the last."""
        return 1 + self.first(len(self) - 1) if len(self) else 0

    def together(self, first: int, last: int) -> int:
        """The place of column ``first`` if those of [first, last) follow one another, else -1."""
        starts, firsts = self._stretches
        stretch = int(np.searchsorted(firsts, first, side="right")) - 1
        return int(starts[stretch]) + first - int(firsts[stretch]) if last <= firsts[stretch + 1] else -1

    def of(self, first: int, last: int, device: torch.device | str = "cpu") -> Tensor:
        """(last - first,) int64: the places of columns [first, last)."""
        starts, firsts = self._tensors(torch.device(device))
        a = int(np.searchsorted(self._stretches[1], first, side="right")) - 1
        b = int(np.searchsorted(self._stretches[1], last, side="left"))
        ends = firsts[a : b + 1].clamp(first, last)
        moved = (starts[a:b] - firsts[a:b]).repeat_interleave(ends.diff(), output_size=last - first)
        return moved.add_(torch.arange(first, last, device=moved.device))

    def spans(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The columns whose places are in [start, stop): first ones, and those after the last."""
        starts, firsts = self._stretches
        heads, tails = ((end - starts).clip(0, np.diff(firsts)) + firsts[:-1] for end in (start, stop))
        heads, tails = heads[heads < tails], tails[heads < tails]
        if not len(heads):
            return []
        gaps = heads[1:] > tails[:-1]
        begins, ends = heads[np.append(True, gaps)], tails[np.append(gaps, True)]
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    def find(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each of these places is here, and the column of those that are."""
        if not self.runs:
            return torch.zeros_like(places, dtype=torch.bool), places
        starts, firsts = self._tensors(places.device)
        ordered, order = starts.sort()
        rank = torch.searchsorted(ordered, places, right=True).sub_(1)
        inside, stretch = rank >= 0, order[rank.clamp_(min=0)]
        columns = firsts[stretch] + places - starts[stretch]
        return inside & (columns < firsts[stretch + 1]), columns

    def _tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._on:
            starts, firsts = (torch.from_numpy(array).to(device) for array in self._stretches)
            self._on[device] = starts, firsts
        return self._on[device]
