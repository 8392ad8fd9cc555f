"""Where the tensors of a worker lie whose model its user has split: which part of what, and who else has the same.

DTensors say which part of a whole tensor they are, plain tensors are all of theirs; the rest the ranks of a worker tell
each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from commeff.compressors import Layout
from commeff.compressors.layout import Field
from commeff.compressors.parts import Part
from commeff.compressors.places import Stretches
from commeff.parallelism.collectives import Axis
from commeff.parallelism.foreign import Place, Workers, local

Spans = tuple[tuple[int, int], ...]


class Portion(NamedTuple):
    """What a rank holds of a tensor.

    Attributes
    ----------
    name : str
        Of the tensor.
    shape : tuple of int
        Of the whole tensor.
    spans : tuple of spans
        For each dimension, the runs of indices that it has.
    """

    name: str
    shape: tuple[int, ...]
    spans: tuple[Spans, ...]

    @classmethod
    def of(cls, name: str, shape: Sequence[int], spans: Sequence[Sequence[Sequence[int]]]) -> Portion:
        """One that was sent as lists."""
        return cls(name, tuple(shape), tuple(tuple((a, b) for a, b in runs) for runs in spans))

    def places(self, start: int = 0) -> tuple[Stretches, ...]:
        """Where its numbers lie in a vector that has the whole tensor from ``start`` on.

        >>> Portion("weight", (4, 6), (((1, 3),), ((2, 5),))).places()
        (Stretches(start=8, length=3, stride=6, times=2),)
        """
        if any(not spans for spans in self.spans):
            return ()
        cut = [i for i, (n, spans) in enumerate(zip(self.shape, self.spans, strict=True)) if spans != ((0, n),)]
        if not cut:
            return (Stretches(start, prod(self.shape)),)
        *_, last = cut
        inner = prod(self.shape[last + 1 :])
        stride = self.shape[last] * inner
        found = []
        for first, end in self._rows(last):
            if len(self.spans[last]) == 1:
                ((a, b),) = self.spans[last]
                places = start + first * stride + a * inner, (b - a) * inner
                found.append(Stretches(*places, stride, end - first) if end - first > 1 else Stretches(*places))
                continue
            for i in range(first, end):
                found += [Stretches(start + i * stride + a * inner, (b - a) * inner) for a, b in self.spans[last]]
        return tuple(found)

    def _rows(self, dim: int) -> Iterable[tuple[int, int]]:
        """The runs of what it has of the dimensions before this one, as if they were one."""
        indices = torch.arange(prod(self.shape[:dim])).view(self.shape[:dim])
        for i, spans in enumerate(self.spans[:dim]):
            indices = indices.index_select(i, torch.cat([torch.arange(a, b) for a, b in spans]))
        return runs(indices.flatten().tolist())


class Placements(NamedTuple):
    """Where the tensors of a worker lie.

    Attributes
    ----------
    workers : Workers
        The ranks.
    whole : Layout
        Of all of them.
    portions : dict of str to Portion
        What this rank has of them.
    homes : dict of str to tuple of Place
        The ranks that have the same of a tensor as this one.
    cutting, dealing : sequence of Axis
        Along which ranks have other parts of the same tensors, and other tensors.
    """

    workers: Workers
    whole: Layout
    portions: dict[str, Portion]
    homes: dict[str, tuple[Place, ...]]
    cutting: Sequence[Axis]
    dealing: Sequence[Axis]

    def layout(self) -> Layout:
        """Of this rank's row: its portions in the order of the whole."""
        at, pieces = {field.name: field for field in self.whole.fields}, []
        dealt = [self.workers.inner.index(axis) for axis in self.dealing]
        for name, portion in self.portions.items():
            shape = tuple(sum(b - a for a, b in spans) for spans in portion.spans)
            places = portion.places(at[name].start)
            stages = {tuple(home[i] for i in dealt) for home in self.homes[name]}
            pieces.append((name, shape, places, len(self.homes[name]), len(stages)))
        return self.whole.in_pieces(pieces, self.cutting, self.dealing)

    def parts(self, layout: Layout) -> tuple[Part, ...]:
        """The columns of the row by the ranks that hold them."""
        found: dict[str, list[Field]] = {}
        for field in layout.fields:
            if field.start < field.stop:
                found.setdefault(self.workers.words(self.homes[field.name]), []).append(field)
        layouts = {name: Layout.of([(field.name, field.shape) for field in fields]) for name, fields in found.items()}
        return tuple(
            Part(name, [(field.start, field.stop) for field in found[name]], layouts[name], layout.cuts)
            for name in sorted(found)
        )


def portion(name: str, parameter: Tensor) -> Portion:
    """Which part of a tensor this rank holds."""
    shape = tuple(parameter.shape)
    if not isinstance(parameter, DTensor):
        return Portion(name, shape, tuple(((0, length),) for length in shape))
    return Portion(name, shape, tuple(tuple(_held(parameter, dim)) for dim in range(len(shape))))


def _held(parameter: DTensor, dim: int) -> Iterable[tuple[int, int]]:
    """The runs of indices of one dimension that this rank has: what it would get of their numbers."""
    placements: list[Placement] = []
    for placement in parameter.placements:
        if isinstance(placement, _StridedShard) and placement.dim == dim:  # FSDP after tensor parallelism
            placements.append(_StridedShard(0, split_factor=placement.split_factor))
        else:
            placements.append(Shard(0) if placement.is_shard(dim) else Replicate())
    indices = torch.arange(parameter.shape[dim], device=parameter.device_mesh.device_type)
    own = distribute_tensor(indices, parameter.device_mesh, placements, src_data_rank=None).to_local().tolist()
    return runs(own)


def runs(indices: Iterable[int]) -> Iterable[tuple[int, int]]:
    """The first, and the one after the last, of each run of consecutive numbers.

    >>> list(runs([3, 4, 5, 8]))
    [(3, 6), (8, 9)]
    """
    for _, run in groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0]):
        found = [index for _, index in run]
        yield found[0], found[-1] + 1


def placements_of(parameters: Mapping[str, nn.Parameter], workers: Workers) -> Placements:
    """Where the tensors of the worker lie; all its ranks call it.

    Raises
    ------
    ValueError
        Tensors of one name differ, as whole ones or where they should be copies.
    """
    mine = [(portion(name, parameter), _digest(local(parameter))) for name, parameter in parameters.items()]
    theirs = {
        place: [(Portion.of(*what), digest) for what, digest in held]
        for place, held in workers.gather([([*what], digest) for what, digest in mine]).items()
    }
    found: dict[Portion, dict[Place, int]] = {}
    shapes: dict[str, set[tuple[int, ...]]] = {}
    for place, held in theirs.items():
        for what, digest in held:
            found.setdefault(what, {})[place] = digest
            shapes.setdefault(what.name, set()).add(what.shape)
    faults = [
        f"a name must name one tensor, got {name} of shapes {' and '.join(map(str, sorted(several)))}: give the "
        "modules of each stage the names that they have in the whole model"
        for name, several in shapes.items()
        if len(several) > 1
    ]
    faults += [
        f"copies of {what.name} must be equal, got other values at {workers.words(list(digests)[:1])} than elsewhere "
        f"of {workers.words(list(digests))}: seed all ranks alike, or, where these are other tensors, give the modules "
        "of each stage the names that they have in the whole model"
        for what, digests in found.items()
        if len(set(digests.values())) > 1
    ]
    if faults:
        raise ValueError("\n".join(faults))
    names = {place: {what.name for what, _ in held} for place, held in theirs.items()}
    dealing = [axis for i, axis in enumerate(workers.inner) if _differ(names, i)]
    return Placements(
        workers,
        Layout.of([(name, shape) for name, (shape,) in shapes.items()]),
        {what.name: what for what, _ in mine},
        {what.name: tuple(sorted(found[what])) for what, _ in mine},
        [axis for axis in workers.inner if axis not in dealing],
        dealing,
    )


def _differ(names: Mapping[Place, set[str]], i: int) -> bool:
    """Whether ranks that differ in coordinate i alone have tensors of other names."""
    first: dict[Place, set[str]] = {}
    return any(first.setdefault((*place[:i], *place[i + 1 :]), here) != here for place, here in names.items())


def _digest(values: Tensor) -> int:
    """A number that differs where values do, of up to a thousand of them."""
    flat = values.flatten()
    return hash(tuple(flat[:: max(1, len(flat) // 1000)].tolist()))
