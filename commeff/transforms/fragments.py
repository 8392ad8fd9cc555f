"""Fragments: groups of tensors that are shared in turns."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.properties import scope_of
from commeff.core.strategy import Transform
from commeff.transforms.blocks import Blocks
from commeff.transforms.delayed import MixedIn
from commeff.transforms.timing import Every


class Fragments(Blocks):
    """`inner` on each of `count` groups of neighbouring columns every `period` steps, evenly staggered (arXiv
    2501.18512).

    Groups are of about equal size, and of whole tensors if there are as many. All of the first is due when all would be
    if there were one. A group is a vector of its own: compressors see one at a time. Memory and messages are those of
    the inner transform, per group.

    Parameters
    ----------
    inner : Transform
        What shares a group of columns.
    period : int
        The steps between two turns of a group.
    count : int
        The number of groups.
    begin : int
        The step with which the first period begins.
    delay, mixing : int, float
        What a group finds is mixed in so many steps later, see `MixedIn`; at once unless given.
    """

    def __init__(
        self, inner: Transform, period: int, count: int, begin: int = 0, delay: int = 0, mixing: float = 0.0
    ) -> None:
        super().__init__(mixed_in(Every(period, inner), delay, mixing), ())
        require.count(fragments=count)
        self.period, self.count, self.begin = period, count, begin

    def _partition(self, layout: Layout, communicator: Communicator) -> list[tuple[int, int]]:
        self.cuts = self._begins(layout)
        if scope_of(self._inner) == "whole":
            return list(pairwise((0, *self.cuts, layout.d)))
        return super()._partition(layout, communicator)

    def _begins(self, layout: Layout) -> tuple[int, ...]:
        """The columns at which a new group begins."""
        begins, even = [field.start for field in layout.fields], range(1, self.count)
        if self.count > len(begins):
            return tuple(layout.d * i // self.count for i in even)
        cuts: tuple[int, ...] = ()
        for i in even:  # the tensor nearest to an even cut that leaves one for every fragment to come
            free = begins[begins.index(max(cuts, default=0)) + 1 : len(begins) - self.count + i + 1]
            cuts += (min(free, key=lambda begin: abs(begin - layout.d * i / self.count)),)
        return cuts

    def _turn(self, block: int) -> int:
        """Which group a block of columns belongs to."""
        return block

    def _twin(self, block: int) -> Transform:
        twin = copy.deepcopy(self._inner)
        every = twin.every if isinstance(twin, MixedIn) else twin
        assert isinstance(every, Every)
        every.ahead = self.period * self._turn(block) // self.count - self.begin
        return twin


class NamedFragments(Fragments):
    """The same on groups that are said by the names of their modules, which need not be neighbours.

    Neighbouring tensors of one group share a message; others of the group travel at the same step.

    Parameters
    ----------
    inner, period, begin, delay, mixing
        As of `Fragments`.
    names : sequence of sequences of str
        The modules (or tensors) of each group, such as ``[["tokens", "blocks.0"], ["blocks.[1-9]", "norm", "head"]]``,
        where ``*``, ``?`` and ``[...]`` stand for others. Every tensor belongs to one group.
    """

    def __init__(
        self,
        inner: Transform,
        period: int,
        names: Sequence[Sequence[str]],
        begin: int = 0,
        delay: int = 0,
        mixing: float = 0.0,
    ) -> None:
        super().__init__(inner, period, len(names), begin, delay, mixing)
        if any(isinstance(group, str) or not group for group in names):
            raise ValueError(
                f"fragments must be a number, or lists of module names, got {list(names)!r}: give each fragment a list"
            )
        self.names = tuple(tuple(group) for group in names)

    def _begins(self, layout: Layout) -> tuple[int, ...]:
        groups = [self._group(field.name) for field in layout.fields]
        for pattern in (pattern for group in self.names for pattern in group):
            if not any(_inside(field.name, pattern) for field in layout.fields):
                raise ValueError(f"every name of a fragment must be a module's, got {pattern!r}: no tensor is in it")
        changes = [i for i in range(1, len(groups)) if groups[i] != groups[i - 1]]
        self._groups = [groups[i] for i in (0, *changes)]
        return tuple(layout.fields[i].start for i in changes)

    def _group(self, tensor: str) -> int:
        found = [i for i, group in enumerate(self.names) if any(_inside(tensor, pattern) for pattern in group)]
        if len(found) != 1:
            where = f"{len(found)} of them" if found else "none"
            raise ValueError(f"every tensor must be in one fragment, got {tensor!r} in {where}: name its module in one")
        return found[0]

    def _turn(self, block: int) -> int:
        return self._groups[block]


def _inside(tensor: str, module: str) -> bool:
    return fnmatchcase(tensor, module) or fnmatchcase(tensor, f"{module}.*")


def mixed_in(every: Every, delay: int, mixing: float) -> Transform:
    """The same, with what it finds mixed in `delay` steps later; itself where that changes nothing."""
    return MixedIn(every, delay, mixing) if delay or mixing else every
