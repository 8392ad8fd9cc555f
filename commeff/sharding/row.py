"""What a rank holds of its worker's parameters and gradients, whatever the stage of ZeRO."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff.boxes import Span
from commeff.compressors import Field, Layout
from commeff.compressors.layout import one_kind
from commeff.sharding.collectives import Axis
from commeff.sharding.precision import AS_MADE, Precision


class Row(ABC):
    """Parameters and gradients of a rank, and which of their columns it updates.

    Parameters
    ----------
    parameters : dict of str to nn.Parameter
        What the rank computes with, already the same at all ranks of the axis.
    layout : Layout
        The layout of these d numbers, in their order.
    axis : Axis
        The ranks of the worker that hold the same.
    precision : Precision
        In which they compute, and sum gradients; what this rank updates, and its gradient as a method gets it, stay as
        the parameters were.

    Attributes
    ----------
    spans : sequence of (start, stop)
        The columns that this rank updates, as it lays them one after the other: its own.
    gradient : (1, own)
        The gradient of those, to be read where `arrived` says that they are final.
    copied : int
        Bytes of parameters that have memory of their own beside the row.
    dtype : torch.dtype
        The type of what this rank updates.
    takes : bool
        Whether `arrived` takes gradients away from the parameters.
    """

    spans: Sequence[Span]
    gradient: Tensor
    copied: int = 0
    takes: bool = False

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], layout: Layout, axis: Axis, precision: Precision = AS_MADE
    ) -> None:
        self.dtype, _ = one_kind(parameters.values())
        self._low = precision.dtype or self.dtype
        self._sums = precision.sums or self._low
        self._named, self._layout, self._axis = dict(parameters), layout, axis
        self.spans = self.spans_of(axis)
        self._l2, self._consumed = 0.0, set[str]()  # the parameters whose gradients have been taken away

    @property
    @abstractmethod
    def parameters(self) -> Tensor:
        """(1, own): this rank's columns; to be given to `load` after the step, in place or not."""

    @abstractmethod
    def awaited(self, spans: Sequence[Span]) -> Sequence[Span]:
        """The spans of columns whose gradients `arrived` wants as soon as they are there, given those of its own that
        are wanted.
        """

    @abstractmethod
    def arrived(self, start: int, stop: int) -> Sequence[Span]:
        """Gradients of these columns are there; which of the own columns are now final."""

    @abstractmethod
    def finish(self) -> Tensor:
        """(1, own): the mean gradient over the ranks, where not yet final too."""

    @abstractmethod
    def load(self, x: Tensor) -> None:
        """Compute with the own columns x (1, own) from now on, at all ranks."""

    @abstractmethod
    def spans_of(self, axis: Axis) -> Sequence[Span]:
        """The columns that the rank of this place on the axis updates."""

    def whole(self, columns: Tensor) -> Tensor:
        """(1, own) at each rank -> (1, d)."""
        size = self._axis.size
        every = [self.spans_of(Axis(self._axis.name, size, rank)) for rank in range(size)]
        widths = [[stop - start for start, stop in spans] for spans in every]
        if min(map(sum, widths)) == self._layout.d:
            return columns
        gathered = self._axis.gather(F.pad(columns, (0, max(map(sum, widths)) - columns.shape[1])), 0)
        row = columns.new_empty(1, self._layout.d)
        for columns_of_rank, spans, sizes in zip(gathered, every, widths, strict=True):
            for (start, stop), piece in zip(spans, columns_of_rank[: sum(sizes)].split(sizes), strict=True):
                row[0, start:stop] = piece
        return row

    def note(self) -> None:
        """All gradients are as backward has left them; writes into them from here on, `gradients_changed` sees."""
        return None  # what is shared by FSDP is taken, or the user's

    def gradients_changed(self, writes: int = 0) -> bool:
        """Whether gradients are not those that `arrived` took, or were written into other than `writes` times."""
        return any(self._named[name].grad is not None for name in self._consumed)

    def copies(self) -> list[str]:
        """The parameters whose numbers lie elsewhere too, from where `load` takes them."""
        return [] if self._low == self.dtype else [*self._named]

    def moved_parameters(self) -> list[str]:
        """The parameters that have been moved out of the row since."""
        return []

    def passes(self, passes: int) -> int:
        """The number of times a gradient arrives when a computation adds to it so many times."""
        return passes

    def begin(self, l2: float = 0.0) -> None:
        """Drop all gradients, at all ranks; l2 x is added to those to come."""
        self.forget()
        self._l2 = l2

    def missing(self) -> list[str]:
        """The parameters that have no gradient, where `arrived` has not taken it."""
        return [name for name, p in self._named.items() if p.grad is None and name not in self._consumed]

    def forget(self) -> None:
        """Drop all gradients, at all ranks."""
        for parameter in self._named.values():
            parameter.grad = None
        self._consumed.clear()

    def _masters(self) -> Tensor | None:
        """(1, own): the own columns of parameters that will compute in another dtype; None if they do not."""
        if self._low == self.dtype:
            return None
        whole = torch.cat([parameter.detach().flatten() for parameter in self._named.values()])
        return torch.cat([whole[start:stop] for start, stop in self.spans])[None]

    def _fields(self, start: int, stop: int) -> list[tuple[nn.Parameter, Field]]:
        """The tensors that begin in these columns, and where they lie."""
        pairs = zip(self._named.values(), self._layout.fields, strict=True)
        return [(parameter, field) for parameter, field in pairs if start <= field.start < stop]


def complement(spans: Iterable[Span], d: int) -> list[Span]:
    """The columns of d that no span has.

    >>> complement([(6, 8), (2, 4)], 8)
    [(0, 2), (4, 6)]
    """
    ends = [0, *chain.from_iterable(sorted(spans)), d]
    return [(start, stop) for start, stop in zip(ends[::2], ends[1::2], strict=True) if start < stop]


def rows_of(parameters: Mapping[str, nn.Parameter], layout: Layout, dtype: torch.dtype) -> Tensor:
    """(1, d): the parameters' data in a dtype, which become views of it."""
    like = next(iter(parameters.values())).detach()
    row = like.new_empty(1, layout.d, dtype=dtype)
    for parameter, field in zip(parameters.values(), layout.fields, strict=True):
        parameter.data = row[0, field.start : field.stop].view(field.shape).copy_(parameter.data)
    return row
