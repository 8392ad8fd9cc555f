"""Fragments: groups of tensors that are shared in turns."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.properties import scope_of
from commeff.core.strategy import Transform
from commeff.transforms.blocks import Blocks
from commeff.transforms.delayed import MixedIn
from commeff.transforms.timing import Every


class Fragments(Blocks):
    """`inner` on each of `count` groups of neighbouring columns, whose turns are evenly staggered (arXiv 2501.18512).

    Groups are of about equal size, and of whole tensors if there are as many. All of the first is due when all would be
    if there were one. A group is a vector of its own: compressors see one at a time. Memory and messages are those of
    the inner transform, per group.

    Parameters
    ----------
    inner : Every or MixedIn
        What shares a group of columns, and in which period.
    count : int
        The number of groups.
    """

    def __init__(self, inner: Every | MixedIn, count: int) -> None:
        super().__init__(inner, ())
        require.count(fragments=count)
        self.count = count

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
        """The group that a block of columns belongs to."""
        return block

    def _twin(self, block: int) -> Transform:
        twin: Any = copy.deepcopy(self._inner)
        every: Every = twin.every if isinstance(twin, MixedIn) else twin
        every.offset += every.period * self._turn(block) // self.count
        return twin


class NamedFragments(Fragments):
    """The same on groups that are said by the names of their modules, which need not be neighbours.

    Neighbouring tensors of one group share a message; others of the group travel at the same step.

    Parameters
    ----------
    inner : Every or MixedIn
        As of `Fragments`.
    names : sequence of sequences of str
        The modules (or tensors) of each group, such as ``[["tokens", "blocks.0"], ["blocks.[1-9]", "norm", "head"]]``,
        where ``*``, ``?`` and ``[...]`` stand for others. Every tensor belongs to one group.
    """

    def __init__(self, inner: Every | MixedIn, names: Sequence[Sequence[str]]) -> None:
        super().__init__(inner, len(names))
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
        matches = [i for i, group in enumerate(self.names) if any(_inside(tensor, pattern) for pattern in group)]
        if len(matches) != 1:
            where = f"{len(matches)} of them" if matches else "none"
            raise ValueError(f"every tensor must be in one fragment, got {tensor!r} in {where}: name its module in one")
        return matches[0]

    def _turn(self, block: int) -> int:
        return self._groups[block]


def _inside(tensor: str, module: str) -> bool:
    return fnmatchcase(tensor, module) or fnmatchcase(tensor, f"{module}.*")
