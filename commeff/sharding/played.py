"""A mesh without processes: one rank is played, and what the others would send has the right shape, no more.

Models and rows on the meta device take no memory, so what a rank of thousands would hold, send and refuse is known in
milliseconds, by the code that will do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from commeff.sharding.collectives import Arrival, Axis
from commeff.sharding.mesh import AXES, Mesh


class PlayedAxis(Axis):
    """An axis on which the other ranks send what this one does. It counts bytes as any other.

    Examples
    --------
    >>> import torch
    >>> axis = PlayedAxis("tensor", size=4)
    >>> axis.gather(torch.zeros(2, 3), 0).shape, axis.scatter(torch.zeros(8, 3), 0).shape, axis.bytes
    (torch.Size([8, 3]), torch.Size([2, 3]), 144.0)
    """

    def broadcast(self, x: Tensor, source: int = 0) -> None:
        """Nothing."""

    def _part(self, ranks: Sequence[int]) -> Axis:
        return PlayedAxis(self.name, len(ranks), ranks.index(self.rank))

    def _all_reduce(self, x: Tensor, op: str) -> Arrival:
        return lambda: x

    def _all_gather(self, x: Tensor, out: Tensor | None) -> Arrival:
        return partial(x.repeat, self.size, *[1] * (x.ndim - 1)) if out is None else lambda: out

    def _reduce_scatter(self, x: Tensor) -> Arrival:
        return x.chunk(self.size)[0].clone

    def _arrived(self, arrival: Arrival) -> Tensor:
        return arrival()


class PlayedMesh(Mesh):
    """The mesh as its first rank sees it, or another one, without the processes.

    Parameters
    ----------
    degrees : dict of str to int
        The sizes of "worker", "pipeline", "shard" and "tensor".
    coordinates : dict of str to int
        Where the rank is; 0 unless given.
    """

    def __init__(self, degrees: Mapping[str, int], coordinates: Mapping[str, int] | None = None) -> None:
        self.degrees = {name: degrees.get(name, 1) for name in AXES}
        self.coordinates = {name: (coordinates or {}).get(name, 0) for name in AXES}
        self._axes = {name: PlayedAxis(name, size, self.coordinates[name]) for name, size in self.degrees.items()}


@contextmanager
def alone(axis: Axis) -> Iterator[None]:
    """A rank of a pipeline computes its stages on tensors without memory; the others send nothing.

    Raises
    ------
    RuntimeError
        Processes are joined already.
    """
    if dist.is_initialized():
        raise RuntimeError("stages can be played where no processes are joined already")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=axis.size, store=FakeStore())
    try:
        axis.group = group = cast(dist.ProcessGroup, dist.group.WORLD)
        kind = dist.ProcessGroup.BackendType.CUSTOM
        group._register_backend(torch.device("meta"), kind, group._get_backend(torch.device("cpu")))
        yield
    finally:
        axis.group = None
        dist.destroy_process_group()
