"""Many policies at once: the fields of `Policy` as arrays, so that one formula prices one policy or a million.

Names become numbers: the place in `SCHEDULES`, `RECOMPUTES` and `OVERLAPS`; methods and compressors become what they
do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.cluster.groups import Groups
from commeff.planner.methods import METHODS, Compression
from commeff.planner.policy import OVERLAPS, RECOMPUTES, SCHEDULES, Policy

Numbers = NDArray[Any]
Count = NDArray[Any] | float


@dataclass(frozen=True, eq=False)
class Policies:
    """Arrays that broadcast against each other. `precision` is one for all.

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
    period: Numbers
    degree: Numbers
    gradients: Numbers  # the five columns of a `Method`
    gossip: Numbers
    periodic: Numbers
    compresses: Numbers
    memory_bytes: Numbers
    value_bytes: Numbers  # the three of a `Compression`
    rank: Numbers
    summable: Numbers
    partition_checkpoints: Numbers
    offload_checkpoints: Numbers
    precision: str = "bf16"

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> Policies:
        """The policies in order. Layer splits (`stages`) are not kept: only equal pieces have closed forms."""
        precisions = {policy.precision for policy in policies}
        if len(precisions) != 1:
            raise ValueError(f"precisions {sorted(precisions)} were asked for at once; price each precision apart")
        rows = [_numbers(policy) for policy in policies]
        return cls(**{name: np.array([row[name] for row in rows]) for name in rows[0]}, precision=precisions.pop())

    def __len__(self) -> int:
        return int(np.broadcast(*self._arrays().values()).size)

    def at(self, index: Any) -> Policies:
        """Some of them, as an index of an array picks them."""
        arrays = dict(zip(self._arrays(), np.broadcast_arrays(*self._arrays().values()), strict=True))
        return replace(self, **{name: array[index] for name, array in arrays.items()})

    def _arrays(self) -> dict[str, Numbers]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "precision"}

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
        if (cluster, size) not in self._known:
            self._known[cluster, size] = Groups.strided(cluster, getattr(self, size), stride)
        return self._known[cluster, size]

    @cached_property
    def _known(self) -> dict[tuple[Cluster, str], Groups]:
        return {}

    def hidden(self, partial: float) -> Numbers:
        """Share of hideable communication that `overlap` hides: none, `partial` or all of it."""
        return np.array([0.0, partial, 1.0])[self.overlap]

    def tokens(self, sequence: int) -> Numbers:
        """Of one micro-batch; a float, as products with other counts may be large."""
        return 1.0 * self.micro_batch * sequence

    def micro_batches(self, global_batch: Count) -> Numbers:
        """Passes of each rank in one step."""
        return global_batch // (self.data * self.micro_batch)


def _numbers(policy: Policy) -> dict[str, float]:
    method = METHODS[policy.method]
    compression = Compression(4.0, summable=True)
    if policy.compressor is not None:
        compression = Compression.parse(policy.compressor, policy.method)
    plain = (
        "tensor pipeline data workers micro_batch chunks zero sequence_parallel period degree "
        "partition_checkpoints offload_checkpoints"
    )
    return {
        **{name: getattr(policy, name) for name in plain.split()},
        "schedule": SCHEDULES.index(policy.schedule),
        "recompute": RECOMPUTES.index(policy.recompute),
        "overlap": OVERLAPS.index(policy.overlap),
        **vars(method),
        **vars(compression),
    }
