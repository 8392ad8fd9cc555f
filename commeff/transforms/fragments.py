"""Fragments: groups of tensors that are shared in turns."""

from __future__ import annotations

import copy

from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.strategy import Transform
from commeff.transforms.blocks import Blocks
from commeff.transforms.timing import Every


class Fragments(Blocks):
    """`inner` on each of `count` groups of neighbouring columns every `period` steps, evenly staggered (arXiv
    2501.18512).

    Groups are of about equal size, and of whole tensors if there are as many. All of the first is due when all would be
    if there were one. Memory and messages are those of the inner transform, per group.

    Parameters
    ----------
    inner : Transform
        What shares a group of columns.
    period : int
        The steps between two turns of a group.
    count : int
        The number of groups.
    """

    def __init__(self, inner: Transform, period: int, count: int) -> None:
        super().__init__(Every(period, inner), ())
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"fragments must be a whole number of at least 1, got {count!r}: they are shared in turns")
        self.period, self.count = period, count

    def _partition(self, v: Tensor, layout: Layout, communicator: Communicator) -> list[tuple[int, int]]:
        begins, even = [field.start for field in layout.fields], range(1, self.count)
        self.cuts = tuple(layout.d * i // self.count for i in even)
        if self.count <= len(begins):
            self.cuts = ()
            for i in even:  # the tensor nearest to an even cut that leaves one for every fragment to come
                free = begins[begins.index(max(self.cuts, default=0)) + 1 : len(begins) - self.count + i + 1]
                self.cuts += (min(free, key=lambda begin: abs(begin - layout.d * i / self.count)),)
        return super()._partition(v, layout, communicator)

    def _twin(self, block: int) -> Transform:
        every = copy.deepcopy(self._inner)
        assert isinstance(every, Every)
        every.ahead = self.period * block // self.count
        return every
