"""The mesh of a run's processes: worker x pipeline x shard x tensor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from commeff import require
from commeff.communicator.wire.group import timeout_of
from commeff.sharding.collectives import Axis

AXES = ("worker", "pipeline", "shard", "tensor")


class Mesh:
    """Which part of which worker each process holds. Tensor ranks are neighbours, workers farthest apart.

    Every process of the default group makes the mesh at the same time.

    Parameters
    ----------
    worker : int
        Workers of the method: replicas of the model, which the strategy keeps together.
    pipeline : int
        Stages that a worker's layers are dealt to.
    shard : int
        Ranks that a worker's states are sharded over (ZeRO).
    tensor : int
        Ranks that a worker's matrices are split over.
    device : str
        Where tensors are: "cpu" or "cuda".

    Raises
    ------
    ValueError
        A degree is less than 1, or their product is not the number of processes.
    """

    def __init__(
        self, worker: int = 1, pipeline: int = 1, shard: int = 1, tensor: int = 1, *, device: str = "cpu"
    ) -> None:
        self.degrees = dict(zip(AXES, (worker, pipeline, shard, tensor), strict=True))
        self._device = device
        require.at_least(1, **self.degrees)
        size = dist.get_world_size()
        if self.size != size:
            product = " x ".join(f"{name} {degree}" for name, degree in self.degrees.items() if degree > 1) or "1"
            raise ValueError(
                f"the mesh must have as many ranks as there are processes, {size}, got {product} = {self.size}: change "
                f"a degree, or start {self.size} processes"
            )

    @property
    def size(self) -> int:
        """The number of processes."""
        return prod(self.degrees.values())

    @cached_property
    def devices(self) -> DeviceMesh:
        """The mesh as torch's libraries want it."""
        made = init_device_mesh(self._device, tuple(self.degrees.values()), mesh_dim_names=AXES)
        if (timeout := timeout_of()) is not None:
            for group in made.get_all_groups():
                dist.distributed_c10d._set_pg_timeout(timeout, group)
        return made

    @cached_property
    def coordinates(self) -> dict[str, int]:
        """The place of this process, by axis."""
        return {name: self.devices.get_local_rank(name) for name in AXES}

    def group(self, name: str) -> Any:
        """The process group of this process along an axis."""
        return self.devices.get_group(name)

    def axis(self, name: str) -> Axis:
        """The axis as this process sees it, the same object at every call."""
        return self._axes[name]

    @cached_property
    def _axes(self) -> dict[str, Axis]:
        return {
            name: Axis(name, degree, self.coordinates[name], self.group(name)) for name, degree in self.degrees.items()
        }

    @property
    def inner(self) -> dict[str, Axis]:
        """The axes over which a worker lies, where they have more than one rank."""
        return {name: self.axis(name) for name in AXES[1:] if self.degrees[name] > 1}

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Count nothing that is sent inside a worker meanwhile, to measure or to save, as its training."""
        before = {axis: (axis.bytes, axis.waited) for outer in self.inner.values() for axis in outer.family}
        yield
        for axis in [axis for outer in self.inner.values() for axis in outer.family]:
            axis.bytes, axis.waited = before.get(axis, (0.0, 0.0))
