"""A row of parameters that are not all ours to move: DTensors, and those of several dtypes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from commeff.compressors import Layout
from commeff.sharding.collectives import Axis
from commeff.sharding.foreign import Place, Workers, local, resharded
from commeff.sharding.layout import ShardedLayout
from commeff.sharding.parts import parts_of
from commeff.sharding.portions import placements_of
from commeff.sharding.row import Row, Span
from commeff.sharding.rows import Dealt


class BorrowedRow(Row):
    """The parts that a rank holds of all parameters, one after the other, in the widest of their dtypes.

    Plain parameters of that dtype become views of the row. All others are copied: into it at the beginning, and out of
    it after each step, which is a second copy of what they are here and takes as long as reading it once. Gradients are
    copied into a row of their own at the step, until when they are the user's to clip or to change.

    Parameters
    ----------
    parameters : dict of str to nn.Parameter
        What the rank computes with.
    parts : sequence of nn.Module
        Whose parameters they are.
    workers : Workers
        The ranks.

    Attributes
    ----------
    placements : Placements
        Where the tensors of the worker lie.
    copied : int
        Bytes of the parameters that have memory of their own beside the row.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], parts: Sequence[nn.Module], workers: Workers) -> None:
        devices = {parameter.device for parameter in parameters.values()}
        if len(devices) != 1:
            raise ValueError(
                "trainable parameters must be on one device, and be at least one, got "
                f"{len(devices)} devices {sorted(map(str, devices))}: they lie in one tensor"
            )
        self._parts, self._workers = parts, workers
        self.placements = placements_of(parameters, workers)
        self._named, self._axis = dict(parameters), Axis("shard")
        self._layout = Layout.of([(name, tuple(local(p).shape)) for name, p in parameters.items()])
        self.spans = self.spans_of(self._axis)
        dtype = reduce(torch.promote_types, (parameter.dtype for parameter in parameters.values()))
        self._row = torch.empty(1, self._layout.d, dtype=dtype, device=devices.pop())
        self.gradient = torch.zeros_like(self._row)
        self._copied: list[tuple[Tensor, Tensor]] = []
        for parameter, place in self._places(self._row):
            place.copy_(local(parameter))
            if isinstance(parameter, DTensor) or parameter.dtype != dtype:
                self._copied.append((parameter, place))
            else:
                parameter.data = place
        self.copied = sum(local(parameter).nbytes for parameter, _ in self._copied)
        self._compared, self._taken = False, set[str]()

    @property
    def parameters(self) -> Tensor:
        return self._row

    def spans_of(self, axis: Axis) -> Sequence[Span]:
        return [(0, self._layout.d)]

    def awaited(self, spans: Sequence[Span]) -> Sequence[Span]:
        return ()  # until the step they are the user's

    def arrived(self, start: int, stop: int) -> Sequence[Span]:
        return ()

    def copies(self) -> list[str]:
        apart = {id(parameter) for parameter, _ in self._copied}
        return [name for name, parameter in self._named.items() if id(parameter) in apart]

    def finish(self) -> Tensor:
        for parameter, place in self._places(self.gradient):
            gradient = parameter.grad
            assert gradient is not None
            if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
                gradient = gradient.redistribute(placements=parameter.placements)
            place.copy_(local(gradient))
        if not self._compared:
            gradients = {field.name: self.gradient[0, field.start : field.stop] for field in self._layout.fields}
            for fault in _parted(gradients, self.placements.homes, self._workers):
                raise ValueError(fault)
            self._compared = True
        return self.gradient

    def load(self, x: Tensor) -> None:
        if x.data_ptr() != self._row.data_ptr():
            self._row.copy_(x)
        resharded(self._parts)
        for parameter, place in self._copied:
            local(parameter).copy_(place)

    def _places(self, row: Tensor) -> Iterable[tuple[nn.Parameter, Tensor]]:
        for parameter, field in zip(self._named.values(), self._layout.fields, strict=True):
            yield parameter, row[0, field.start : field.stop].view(field.shape)


def borrowed(parameters: Mapping[str, nn.Parameter], parts: Sequence[nn.Module], workers: Workers) -> Dealt:
    """What this rank holds of a model that its user has split, in a row; all ranks of the worker call it."""
    row = BorrowedRow(parameters, parts, workers)
    layout, homes = row.placements
    if not isinstance(layout, ShardedLayout):
        return Dealt(row, layout)
    return Dealt(row, layout, parts_of(layout, {name: workers.words(places) for name, places in homes.items()}))


def _parted(tensors: Mapping[str, Tensor], homes: Mapping[str, Sequence[Place]], workers: Workers) -> Iterable[str]:
    """Copies whose norms differ, as of ranks that have seen other data, in words; all ranks of a worker call it."""
    norms = {
        name: float(torch.linalg.vector_norm(tensor.double()))
        for name, tensor in tensors.items()
        if len(homes[name]) > 1
    }
    theirs: dict[Place, dict[str, float]] = workers.gather(norms)
    for name, norm in norms.items():
        for home in homes[name]:
            other = theirs[home].get(name, norm)
            if math.isfinite(norm + other) and not math.isclose(norm, other, rel_tol=1e-3):
                yield (
                    f"copies of {name} must get the same gradient, got norms {norm:.6g} here and {other:.6g} at "
                    f"{workers.words([home])}: nothing averages them over these ranks, which would drift apart; give "
                    "fully_shard that axis, or average them before the step"
                )
