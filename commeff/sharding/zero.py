"""What a rank keeps of its worker's row, and which of it it updates: ZeRO stages 0, 1 and 2 (arXiv 1910.02054).

The ranks of a worker all compute with its d parameters, each on a share of the batch. Bytes of Psi parameters at S
ranks, in float32 with AdamW, and numbers that each rank sends a step:

    stage 0   16 Psi              2 (S-1)/S Psi     everybody updates everything
    stage 1   8 Psi + 8 Psi/S     2 (S-1)/S Psi     states of the optimizer are shared
    stage 2   4 Psi + 12 Psi/S    2 (S-1)/S Psi     gradients too
    stage 3   16 Psi/S            3 (S-1)/S Psi     parameters too (`commeff.sharding.fully`)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from commeff.boxes import Span
from commeff.compressors import Layout
from commeff.sharding.collectives import Arrival, Axis
from commeff.sharding.precision import AS_MADE, Precision
from commeff.sharding.row import Row, complement, rows_of


class ViewedRow(Row):
    """A row that has all parameters its rank computes with, which are views of it."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], layout: Layout, axis: Axis, precision: Precision = AS_MADE
    ) -> None:
        super().__init__(parameters, layout, axis, precision)
        self._master = self._masters()
        self._row = rows_of(self._named, layout, self._low)

    def moved_parameters(self) -> list[str]:
        first, size = self._row.data_ptr(), self._row.element_size()
        fields = self._fields(0, self._layout.d)
        return [field.name for p, field in fields if p.data_ptr() != first + field.start * size]


class SingleRow(ViewedRow):
    """One rank alone updates the whole row. Gradients lie in a row, too."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], layout: Layout, axis: Axis, precision: Precision = AS_MADE
    ) -> None:
        super().__init__(parameters, layout, axis, precision)
        self._gradients = torch.zeros_like(self._row)
        self._version: int | None = None
        self._places = {
            field.start: self._gradients[0, field.start : field.stop].view(field.shape) for field in layout.fields
        }
        self._widen_anew()

    def _widen_anew(self) -> None:
        self.gradient, self._widened = self._gradients, list[Span]()

    def spans_of(self, axis: Axis) -> Sequence[Span]:
        return [(0, self._layout.d)]

    @property
    def parameters(self) -> Tensor:
        return self._row if self._master is None else self._master

    def awaited(self, spans: Sequence[Span]) -> Sequence[Span]:
        return spans

    def arrived(self, start: int, stop: int) -> Sequence[Span]:
        self._gather(start, stop)
        if self._master is not None:
            self._widen([(start, stop)])
        return [(start, stop)]

    def _widen(self, spans: Sequence[Span]) -> None:
        """Let a method have these columns in its own dtype, in a row that lives until the step."""
        if self.gradient is self._gradients:
            self.gradient = torch.empty_like(self._gradients, dtype=self.dtype)
        for start, stop in spans:
            self.gradient[:, start:stop] = self._gradients[:, start:stop]
        self._widened += spans

    def _gather(self, start: int, stop: int) -> None:
        for parameter, field in self._fields(start, stop):
            self._placed(parameter, self._places[field.start])
        self._version = self._gradients._version

    def note(self) -> None:
        self._gather(0, self._layout.d)

    def forget(self) -> None:
        super().forget()
        self._version = None
        self._widen_anew()

    def begin(self, l2: float = 0.0) -> None:
        torch.mul(self._row, l2, out=self._gradients) if l2 else self._gradients.zero_()
        self._version = None
        self._widen_anew()
        for parameter, field in self._fields(0, self._layout.d):
            parameter.grad = self._places[field.start]

    def gradients_changed(self, writes: int = 0) -> bool:
        moved = [self._placed(p, self._places[field.start]) for p, field in self._fields(0, self._layout.d)]
        if self._version is None:
            return False
        return any(moved) or self._version + writes != self._gradients._version

    def finish(self) -> Tensor:
        self.note()
        self._version = None
        if not self._widened:
            return self._gradients.to(self.dtype)
        self._widen(complement(self._widened, self._layout.d))
        gradient = self.gradient
        self._widen_anew()
        return gradient

    def load(self, x: Tensor) -> None:
        for target in (self.parameters, self._row):
            if x.data_ptr() != target.data_ptr():
                target.copy_(x)

    @staticmethod
    def _placed(parameter: nn.Parameter, place: Tensor) -> bool:
        """Gradients live in one row; those that lie elsewhere, since they were thrown away, are put back into it.

        Returns whether the gradient lay elsewhere.
        """
        gradient = _dense(parameter)
        if gradient.data_ptr() == place.data_ptr():
            return False
        parameter.grad = place.copy_(gradient)
        return True


class BucketedRow(ViewedRow):
    """Several ranks reduce gradients bucket by bucket, as backward makes them.

    At stage 0 each rank updates the whole row, and a step costs an all-reduce of every bucket. At 1 and 2 each updates
    an n-th of every bucket, and a step costs a reduce-scatter and an all-gather of each. At stage 2 gradients are freed
    as they leave; at 0 and 1 they stay, and their mean, of the columns that the rank updates, lives until the step.

    Parameters
    ----------
    megabytes : float
        About how large a bucket is; 0: all gradients are one, reduced after backward.
    zero : int
        The stage.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        layout: Layout,
        axis: Axis,
        precision: Precision = AS_MADE,
        megabytes: float = 0.0,
        zero: int = 2,
    ) -> None:
        most = megabytes * 1e6 / next(iter(parameters.values())).element_size() or layout.d
        self._buckets, self._zero, self.takes = layout.blocks(most, most), zero, zero == 2
        super().__init__(parameters, layout, axis, precision)
        if all(a == b for a, b in self.spans_of(Axis(axis.name, axis.size, axis.size - 1))):
            raise ValueError(
                f"{axis.name} = {axis.size} ranks need a longer row than {layout.d} numbers: take fewer ranks"
            )
        ends = [0, *accumulate(stop - start for start, stop in self.spans)]
        self._bucket_spans = list(pairwise(ends))  # the buckets' places among the own columns
        self._alone = self._row.new_empty(1, 0, dtype=self.dtype)  # the mean of stages 0 and 1 between two steps
        self.gradient = self._row.new_zeros(1, ends[-1], dtype=self._sums) if self.takes else self._alone
        self._begin_anew()
        self.begin()

    def _begin_anew(self) -> None:
        self._consumed.clear()
        self._complete: set[int] = set()
        self._next = len(self._buckets) - 1  # buckets leave from the last to the first, the same at every rank
        self._travelling: deque[tuple[int, Arrival]] = deque()
        self._counted: dict[str, tuple[int, int]] = {}
        if not self.takes:
            self.gradient = self._alone

    def spans_of(self, axis: Axis) -> Sequence[Span]:
        return [part_of(start, stop, axis) if self._zero else (start, stop) for start, stop in self._buckets]

    @property
    def parameters(self) -> Tensor:
        if self._master is not None:
            return self._master
        if not self._zero:
            return self._row
        columns = [self._row[:, start:stop] for start, stop in self.spans]
        return columns[0] if len(columns) == 1 else torch.cat(columns, 1)

    def awaited(self, spans: Sequence[Span]) -> Sequence[Span]:
        return self._buckets if len(self._buckets) > 1 else ()

    def arrived(self, start: int, stop: int) -> Sequence[Span]:
        self._complete |= {i for i, (a, b) in enumerate(self._buckets) if start <= a and b <= stop}
        final: list[Span] = []
        while self._next in self._complete:
            self._send()
            if len(self._travelling) > 1:
                final.append(self._receive())
        return final if self.gradient.dtype == self.dtype else ()

    def begin(self, l2: float = 0.0) -> None:
        super().begin(l2)
        for parameter in () if self.takes else self._named.values():
            parameter.grad = torch.zeros_like(parameter)

    def gradients_changed(self, writes: int = 0) -> bool:
        return super().gradients_changed() or not self._counted.items() <= self._writes(0, self._layout.d).items()

    def note(self) -> None:
        self._counted = self._writes(0, self._layout.d)

    def _writes(self, start: int, stop: int) -> dict[str, tuple[int, int]]:
        """The address of each gradient in these columns, and how often it was written into."""
        grads = ((field.name, parameter.grad) for parameter, field in self._fields(start, stop))
        return {name: (_numbers(grad).data_ptr(), grad._version) for name, grad in grads if grad is not None}

    def finish(self) -> Tensor:
        while self._next >= 0:
            self._send()
        while self._travelling:
            self._receive()
        gradient = self.gradient
        self._begin_anew()
        return gradient.to(self.dtype)

    def forget(self) -> None:
        super().forget()
        while self._travelling:
            self._receive()
        self._begin_anew()

    def _send(self) -> None:
        """Reduce the next bucket; at stage 2 its gradients are freed."""
        if self.gradient is self._alone:
            self.gradient = self._row.new_empty(1, self._bucket_spans[-1][1], dtype=self.dtype)
        start, stop = self._buckets[self._next]
        if not self._zero and self._sums == self.dtype:
            bucket = self.gradient[0, start:stop].zero_()
        else:
            ranks = self._axis.size if self._zero else 1
            bucket = self._row.new_zeros(-(-(stop - start) // ranks) * ranks, dtype=self._sums)
        for parameter, field in self._fields(start, stop):
            if parameter.grad is not None:
                bucket[field.start - start : field.stop - start] = _dense(parameter).flatten()
            if self.takes:
                self._consumed.add(field.name)
                parameter.grad = None
        self._counted |= self._writes(start, stop)
        if self._l2:
            bucket[: stop - start].add_(self._row[0, start:stop], alpha=self._l2)
        arrival = self._axis.post_scatter(bucket) if self._zero else self._axis.post_reduce(bucket, given=True)
        self._travelling.append((self._next, arrival))
        self._next -= 1

    def _receive(self) -> Span:
        """Wait for the bucket that has travelled longest; gives its own columns."""
        i, arrived = self._travelling.popleft()
        start, stop = self._bucket_spans[i]
        torch.div(arrived()[: stop - start], self._axis.size, out=self.gradient[0, start:stop])
        return start, stop

    def load(self, x: Tensor) -> None:
        if self._master is not None and x.data_ptr() != self._master.data_ptr():
            self._master.copy_(x)
        if not self._zero:
            if x.data_ptr() != self._row.data_ptr():
                self._row.copy_(x)
            return
        travelling: deque[tuple[Tensor, Arrival]] = deque()
        for (start, stop), (first, last) in zip(self._buckets, self._bucket_spans, strict=True):
            place, width = self._row[0, start:stop], -(-(stop - start) // self._axis.size)
            even = len(place) == width * self._axis.size  # else the end of what is gathered is padding
            out = place if even else place.new_zeros(width * self._axis.size)
            part = out[self._axis.rank * width : (self._axis.rank + 1) * width]
            part[: last - first] = x[0, first:last]
            travelling.append((place, self._axis.post_gather(part, out)))
            if len(travelling) > 1:
                self._write(*travelling.popleft())
        self._write(*travelling.popleft())

    @staticmethod
    def _write(place: Tensor, gathered: Arrival) -> None:
        whole = gathered()[: len(place)]
        if whole.data_ptr() != place.data_ptr():
            place.copy_(whole)


def _dense(parameter: nn.Parameter) -> Tensor:
    """The gradient, with all its zeros."""
    assert parameter.grad is not None
    return parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad


def _numbers(gradient: Tensor) -> Tensor:
    """What has memory of a gradient; a sparse one has only some rows."""
    return gradient._values() if gradient.is_sparse else gradient


def part_of(start: int, stop: int, axis: Axis) -> Span:
    """This rank's part of a span: equal ones, the last ones less, which may be empty."""
    width = -(-(stop - start) // axis.size)
    return min(start + axis.rank * width, stop), min(start + (axis.rank + 1) * width, stop)
