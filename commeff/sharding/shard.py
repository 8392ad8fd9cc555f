"""Which part of a whole tensor a rank holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from commeff.compressors.places import Stretches

Shape = tuple[int, ...]
Runs = tuple[tuple[int, int], ...]


class Shard(NamedTuple):
    """The part of a tensor that a rank holds.

    Attributes
    ----------
    shape : tuple of int
        The shape of the whole tensor.
    runs : tuple of runs
        For each dimension the indices that it has: of each run the first one, and the one after the last.
    copies : int
        How many ranks of the axis hold this part.

    Examples
    --------
    >>> shard = Shard.along(0, (8,), ((0, 1), (4, 5)))
    >>> print(shard)
    S(0)[0:1, 4:5] of (8,)
    >>> shard.sizes, shard.take(torch.arange(8))
    ((2,), tensor([0, 4]))
    """

    shape: Shape
    runs: tuple[Runs, ...]
    copies: int = 1

    @classmethod
    def along(cls, dim: int, shape: Sequence[int], runs: Runs, copies: int = 1) -> Shard:
        """A part that is cut along one dimension."""
        return cls(tuple(shape), tuple(runs if i == dim else ((0, n),) for i, n in enumerate(shape)), copies)

    @classmethod
    def of_all(cls, shape: Sequence[int], copies: int = 1) -> Shard:
        """All of a tensor."""
        return cls.along(-1, shape, (), copies)

    @property
    def cut(self) -> list[int]:
        """The dimensions of which it has not all."""
        return [dim for dim, (n, runs) in enumerate(zip(self.shape, self.runs, strict=True)) if runs != ((0, n),)]

    @property
    def sizes(self) -> Shape:
        """The shape of the part."""
        return tuple(sum(stop - start for start, stop in runs) for runs in self.runs)

    def __str__(self) -> str:
        parts = [f"S({i})[{', '.join(f'{a}:{b}' for a, b in self.runs[i])}]" for i in self.cut]
        return f"{' '.join(parts) or 'R'} of {self.shape}"

    def take(self, whole: Tensor) -> Tensor:
        """This part of the whole, in memory of its own."""
        for dim in self.cut:
            whole = torch.cat([whole.narrow(dim, a, b - a) for a, b in self.runs[dim]], dim)
        return whole if self.cut else whole.clone(memory_format=torch.contiguous_format)

    def places(self, start: int = 0) -> tuple[Stretches, ...]:
        """Where its numbers lie in a vector that has the whole tensor from ``start`` on.

        >>> Shard((4, 6), (((1, 3),), ((2, 5),))).places()
        (Stretches(start=8, length=3, stride=6, times=2),)
        """
        if not prod(self.sizes):
            return ()
        if not self.cut:
            return (Stretches(start, prod(self.shape)),)
        *_, last = self.cut
        inner = prod(self.shape[last + 1 :])
        stride = self.shape[last] * inner
        stretches = []
        for first, end in self._rows(last):
            if len(self.runs[last]) == 1:
                ((a, b),) = self.runs[last]
                places = start + first * stride + a * inner, (b - a) * inner
                stretches.append(Stretches(*places, stride, end - first) if end - first > 1 else Stretches(*places))
                continue
            for i in range(first, end):
                stretches += [Stretches(start + i * stride + a * inner, (b - a) * inner) for a, b in self.runs[last]]
        return tuple(stretches)

    def _rows(self, dim: int) -> Iterable[tuple[int, int]]:
        """The runs of what it has of the dimensions before this one, as if they were one."""
        if self.cut[0] == dim:
            return [(0, prod(self.shape[:dim]))]
        indices = torch.arange(prod(self.shape[:dim])).view(self.shape[:dim])
        for i, spans in enumerate(self.runs[:dim]):
            indices = indices.index_select(i, torch.cat([torch.arange(a, b) for a, b in spans]))
        return runs_of(indices.flatten().tolist())

    def boxes(self, offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[Shape, Shape]]:
        """A box of the part as boxes of the whole, whose numbers follow one another in the same order."""
        reached = [[*_reached(*args)] for args in zip(self.runs, offsets, sizes, strict=True)]
        several = max((dim for dim, runs in enumerate(reached) if len(runs) > 1), default=0)
        for dim, runs in enumerate(reached[:several]):
            reached[dim] = [(a + i, 1) for a, length in runs for i in range(length)]
        for box in product(*reached):
            yield tuple(first for first, _ in box), tuple(length for _, length in box)


def cut_evenly(shape: Sequence[int], dim: int, size: int, rank: int, parts: int = 1, copies: int = 1) -> Shard:
    """Each of `parts` equal parts of a dimension, dealt evenly to `size` ranks.

    >>> print(cut_evenly((12, 2), 0, size=2, rank=1, parts=3))
    S(0)[2:4, 6:8, 10:12] of (12, 2)
    """
    part, share = shape[dim] // parts, shape[dim] // parts // size
    runs = tuple((p * part + rank * share, p * part + (rank + 1) * share) for p in range(parts))
    return Shard.along(dim, shape, runs if parts > 1 else runs[:1], copies)


def runs_of(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first, and the one after the last, of each run of consecutive numbers.

    >>> list(runs_of([3, 4, 5, 8]))
    [(3, 6), (8, 9)]
    """
    for _, run in groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0]):
        numbers = [index for _, index in run]
        yield numbers[0], numbers[-1] + 1


def _reached(runs: Runs, first: int, size: int) -> Iterator[tuple[int, int]]:
    """Which indices of the whole those from ``first`` on are: of each run the first one, and how many."""
    last = first + size
    for start, stop in runs:
        a, b = max(first, 0), min(last, stop - start)
        if a < b:
            yield start + a, b - a
        first, last = first - (stop - start), last - (stop - start)
