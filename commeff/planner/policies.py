"""Many policies at once: the fields of `Policy` as arrays, so that one formula prices one policy or a million.

Names become numbers: the place in `SCHEDULES`, `RECOMPUTES` and `OVERLAPS`, and the place of the method in `methods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.cluster.groups import Groups
from commeff.planner.arrays import Count, Mask, Numbers, distinct
from commeff.planner.choices import OVERLAPS, RECOMPUTES, SCHEDULES
from commeff.planner.worker_method import WorkerMethod

if TYPE_CHECKING:
    from commeff.planner.policy import Policy

COUNTS = ("tensor", "pipeline", "data", "workers", "micro_batch", "chunks", "zero")
SWITCHES = ("sequence_parallel", "partition_checkpoints", "offload_checkpoints")


@dataclass(frozen=True, eq=False)
class Policies:
    """Arrays that broadcast against each other. `precision` is one for all.

    Attributes
    ----------
    tensor, pipeline, data, workers, micro_batch, chunks, zero : as in `Policy`.
    schedule, recompute, overlap : places in `SCHEDULES`, `RECOMPUTES` and `OVERLAPS`.
    sequence_parallel, partition_checkpoints, offload_checkpoints : as in `Policy`.
    method : places in `methods`.
    methods : what the worker axis may do.
    precision : of all policies.

    Examples
    --------
    >>> from commeff.planner import Policy
    >>> both = Policies.of([Policy(tensor=8), Policy(tensor=2, recompute="full")])
    >>> both.tensor, both.recompute
    (array([8, 2]), array([0, 2]))
    """

    tensor: Numbers
    pipeline: Numbers
    data: Numbers
    workers: Numbers
    micro_batch: Numbers
    chunks: Numbers
    schedule: Numbers
    zero: Numbers
    recompute: Numbers
    sequence_parallel: Numbers
    overlap: Numbers
    method: Numbers
    partition_checkpoints: Numbers
    offload_checkpoints: Numbers
    methods: tuple[WorkerMethod, ...] = (WorkerMethod(),)
    precision: str = "bf16"

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> Policies:
        """The policies in order. Layer splits (`stages`) are not kept: only equal pieces have closed forms."""
        precisions = {policy.precision for policy in policies}
        if len(precisions) != 1:
            raise ValueError(f"precision must be one for all, got {' '.join(sorted(precisions))}; price each apart")
        worker_methods = [policy.worker_method for policy in policies]
        methods = tuple(dict.fromkeys(worker_methods))
        return cls(
            **{name: np.array([getattr(policy, name) for policy in policies]) for name in (*COUNTS, *SWITCHES)},
            schedule=np.array([SCHEDULES.index(policy.schedule) for policy in policies]),
            recompute=np.array([RECOMPUTES.index(policy.recompute) for policy in policies]),
            overlap=np.array([OVERLAPS.index(policy.overlap) for policy in policies]),
            method=np.array([methods.index(method) for method in worker_methods]),
            methods=methods,
            precision=precisions.pop(),
        )

    def __len__(self) -> int:
        return int(np.broadcast(*self._arrays().values()).size)

    def __getitem__(self, index: Any) -> Policies:
        """Some of them, as an index of an array picks them."""
        arrays = dict(zip(self._arrays(), np.broadcast_arrays(*self._arrays().values()), strict=True))
        return replace(self, **{name: array[index] for name, array in arrays.items()})

    def apart(self, names: Sequence[str]) -> tuple[Policies, NDArray[np.int64]]:
        """Policies that differ in some fields, one of each kind, and of which kind each policy is."""
        rows, where = distinct(*(np.ravel(getattr(self, name)) for name in names))
        first = np.empty(len(rows), dtype=np.int64)
        first[where[::-1]] = np.arange(len(where))[::-1]
        return self[first], where

    def _arrays(self) -> dict[str, Numbers]:
        return {field.name: getattr(self, field.name) for field in fields(self)[:-2]}

    @property
    def shard(self) -> Numbers:
        """Ranks that ZeRO shares a worker over."""
        return self.data // self.workers

    def sharing(self, cluster: Cluster) -> Groups:
        """Ranks that share the states of a worker."""
        return self._groups(cluster, "shard", self.tensor)

    def splitting(self, cluster: Cluster) -> Groups:
        """Ranks that split a layer."""
        return self._groups(cluster, "tensor", 1)

    def _groups(self, cluster: Cluster, size: str, stride: Numbers | int) -> Groups:
        """Worked out once, as many formulas ask for them."""
        if (cluster, size) not in self._strided_groups:
            self._strided_groups[cluster, size] = Groups.strided(cluster, getattr(self, size), stride)
        return self._strided_groups[cluster, size]

    @cached_property
    def _strided_groups(self) -> dict[tuple[Cluster, str], Groups]:
        return {}

    @property
    def plain(self) -> Mask:
        """Where the method is `psgd`."""
        return np.array([method.is_plain for method in self.methods])[self.method]

    @property
    def degree(self) -> Numbers:
        """Neighbours in gossip, where no topology says otherwise."""
        return np.array([method.degree for method in self.methods])[self.method]

    def hidden(self, partial: float) -> Numbers:
        """Share of hideable communication that `overlap` hides: none, `partial` or all of it."""
        return np.array([0.0, partial, 1.0])[self.overlap]

    def tokens(self, sequence: int) -> Numbers:
        """Tokens of one micro-batch; a float, as products with other counts may be large."""
        return 1.0 * self.micro_batch * sequence

    def micro_batches(self, global_batch: Count) -> Numbers:
        """Passes of each rank in one step."""
        return global_batch // (self.data * self.micro_batch)
