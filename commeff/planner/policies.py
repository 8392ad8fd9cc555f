"""What a policy chooses from, and many policies at once: the fields of `Policy` as arrays, so that one formula prices
one policy or a million.

Names become numbers: the place in `CHOICES`, and the place of the method in `methods`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.cluster.groups import Groups
from commeff.planner.constants import MEASURED, Constants
from commeff.planner.model import Model
from commeff.planner.worker_method import WorkerMethod

if TYPE_CHECKING:
    from commeff.planner.policy import Policy

Numbers = NDArray[Any]
Count = NDArray[Any] | float
Mask = NDArray[np.bool_]

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "zero_bubble")
RECOMPUTES = ("none", "selective", "full")
OVERLAPS = ("none", "tensor", "data", "partial", "full")
# Which of them hide what: messages of tensor and context ranks, of data-parallel ranks and workers, and of stages.
HIDES = {"tensor": (0, 1, 0, 1, 1), "data": (0, 0, 1, 1, 1), "pipeline": (0, 0, 0, 0, 1)}

# Bytes for each parameter: weights, gradients, optimizer (Adam: two moments, and an fp32 copy of 16-bit weights). With
# bf16, gradients are summed in fp32: 18 in all; with fp16 they travel as fp16 and are copied to fp32 for the step: 20;
# fp32 16 (the table of Megatron-LM's distributed optimizer). ZeRO's own count, 16, has 2-byte gradients.
STATES = {"fp32": (4, 4, 8), "tf32": (4, 4, 8), "bf16": (2, 4, 12), "fp16": (2, 2, 16), "fp8": (2, 4, 12)}
CONTEXTS = ("ring", "all_to_all")
CHOICES = {"schedule": SCHEDULES, "recompute": RECOMPUTES, "overlap": OVERLAPS, "context_by": CONTEXTS}
SWITCHES = (
    *("sequence_parallel", "partition_checkpoints", "offload_checkpoints", "reshard", "fp32_parameters"),
    *("half_gradients", "fp8_copies"),
)
BUCKET = 500_000_000  # DeepSpeed's reduce_bucket_size
NO, YES, ZERO, ONE, MANY = (partial(np.array, value) for value in (False, True, 0, 1, BUCKET))  # unless given


class PolicySetting(NamedTuple):
    """The model and where it is trained: all that a price depends on beside the policy.

    Attributes
    ----------
    model : the transformer to be trained.
    cluster : the GPUs and the links between them.
    global_batch : sequences in a step, over all ranks.
    constants : what a real machine reaches of its data sheet.
    uneven : whether layers may be cut into unequal stages.
    """

    model: Model
    cluster: Cluster
    global_batch: Count
    constants: Constants = MEASURED
    uneven: bool = False

    @property
    def memory_rate(self) -> float:
        """Bytes per second of a GPU's memory that element-wise kernels reach."""
        return self.cluster.gpu.memory_bandwidth * self.constants.memory_efficiency


@dataclass(frozen=True, eq=False)
class Policies:
    """Arrays that broadcast against each other. `precision` is one for all.

    Attributes
    ----------
    tensor, pipeline, data, workers, micro_batch, chunks, zero : as in `Policy`.
    schedule, recompute, overlap, context_by : places in `CHOICES`.
    sequence_parallel, partition_checkpoints, offload_checkpoints : as in `Policy`.
    context, unit, reshard, fp32_parameters, recompute_every, loss_chunks, fragmentation, half_gradients, bucket,
        fp8_copies, expert, prefetch : as in `Policy`.
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
    partition_checkpoints: Numbers = field(default_factory=NO)
    offload_checkpoints: Numbers = field(default_factory=NO)
    context: Numbers = field(default_factory=ONE)
    unit: Numbers = field(default_factory=ONE)
    reshard: Numbers = field(default_factory=YES)
    fp32_parameters: Numbers = field(default_factory=NO)
    recompute_every: Numbers = field(default_factory=ONE)
    loss_chunks: Numbers = field(default_factory=ONE)
    fragmentation: Numbers = field(default_factory=ZERO)
    half_gradients: Numbers = field(default_factory=NO)
    bucket: Numbers = field(default_factory=MANY)
    fp8_copies: Numbers = field(default_factory=NO)
    expert: Numbers = field(default_factory=ONE)
    context_by: Numbers = field(default_factory=ZERO)
    prefetch: Numbers = field(default_factory=ONE)
    methods: tuple[WorkerMethod, ...] = (WorkerMethod(),)
    precision: str = "bf16"

    @classmethod
    def of(cls, policies: Sequence[Policy]) -> Policies:
        """The policies in order. What tells stages apart (`stages`, `recompute_stages`) is not kept: only equal
        ones have closed forms."""
        precisions = {policy.precision for policy in policies}
        if len(precisions) != 1:
            raise ValueError(f"precision must be one for all, got {' '.join(sorted(precisions))}; price each apart")
        columns = {field.name: [getattr(policy, field.name) for policy in policies] for field in fields(cls)[:-2]}
        columns["method"] = [policy.worker_method for policy in policies]
        methods = tuple(dict.fromkeys(columns["method"]))
        for name, choices in {**CHOICES, "method": methods}.items():
            columns[name] = [choices.index(value) for value in columns[name]]
        arrays = {name: np.array(column) for name, column in columns.items()}
        return cls(**arrays, methods=methods, precision=precisions.pop())

    def __len__(self) -> int:
        return int(np.broadcast(*self._arrays().values()).size)

    def __getitem__(self, index: Any) -> Policies:
        """Some of them, as an index of an array picks them."""
        arrays = {name: array for name, array in self._arrays().items() if array.ndim}  # the others are of all
        arrays = dict(zip(arrays, np.broadcast_arrays(*arrays.values()), strict=True))
        return replace(self, **{name: array[index] for name, array in arrays.items()})

    def unique(self, names: Sequence[str]) -> tuple[Policies, NDArray[np.int64]]:
        """One policy of each kind that differs in some fields, and the kind of each policy."""
        rows, inverse = distinct(*(np.ravel(getattr(self, name)) for name in names))
        first = np.empty(len(rows), dtype=np.int64)
        first[inverse[::-1]] = np.arange(len(inverse))[::-1]
        return self[first], inverse

    def _arrays(self) -> dict[str, Numbers]:
        return {field.name: getattr(self, field.name) for field in fields(self)[:-2]}

    @property
    def shard(self) -> Numbers:
        """Ranks that ZeRO shares a worker over: those that have other sequences, or other parts of the same ones."""
        return self.context * (self.data // self.workers)

    def sharing(self, cluster: Cluster) -> Groups:
        """Ranks that share the states of a worker."""
        return self._groups(cluster, "shard", self.tensor)

    def splitting(self, cluster: Cluster) -> Groups:
        """Ranks that split the weights of a layer."""
        return self._groups(cluster, "tensor", 1)

    @property
    def head_ranks(self) -> Numbers:
        """Ranks that split the heads of attention."""
        return self.tensor * np.where(self.context_by == CONTEXTS.index("all_to_all"), self.context, 1)

    def ring(self, cluster: Cluster) -> Groups:
        """Ranks that split a sequence."""
        return self._groups(cluster, "context", self.tensor)

    def exchanging(self, cluster: Cluster) -> Groups:
        """Ranks that send each other's experts tokens."""
        return self._groups(cluster, "expert", self.tensor)

    def alike(self, cluster: Cluster) -> Groups:
        """Ranks of a worker that hold the same experts."""
        return self._groups(cluster, "copies", self.tensor * self.expert)

    @property
    def copies(self) -> Numbers:
        """Ranks of a worker that hold the same experts."""
        return self.shard // self.expert

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
        """Mask of the policies whose method is `psgd`."""
        return np.array([method.is_plain for method in self.methods])[self.method]

    @property
    def no_exchange(self) -> bool:
        """Whether no policy has workers that talk to others."""
        return not (self.workers > 1).any()

    def hidden(self, of: str, constants: Constants) -> Numbers:
        """Share of hideable communication that `overlap` hides of one of `HIDES`: none, `hidden_share` or all of it."""
        most = [1.0 if name == "full" else constants.hidden_share for name in OVERLAPS]
        return np.multiply(HIDES[of], most)[self.overlap]

    @property
    def states(self) -> tuple[Count, Count, Count]:
        """Bytes for each parameter, as in `STATES`; 16-bit gradients are copied to fp32 for the step, as with fp16."""
        if not self.half_gradients.any():
            return STATES[self.precision]
        pairs = zip(STATES["fp16"], STATES[self.precision], strict=True)
        weights, gradients, optimizer = (np.where(self.half_gradients, *pair) for pair in pairs)
        return weights, gradients, optimizer

    @property
    def wide(self) -> int:
        """Bytes of an activation: 2, or 4 with fp32 and tf32."""
        return STATES[self.precision][0]

    def tokens(self, setting: PolicySetting) -> Numbers:
        """Tokens of one micro-batch on a rank; a float, as products with other counts may be large."""
        return 1.0 * self.micro_batch * setting.model.sequence / self.context

    def micro_batches(self, setting: PolicySetting) -> Numbers:
        """Passes of each rank in one step."""
        return setting.global_batch // (self.data * self.micro_batch)


def distinct(*columns: Numbers) -> tuple[Numbers, NDArray[np.int64]]:
    """The distinct rows of columns of counts, sorted, and where each row stands among them; `np.unique`, ten times as
    fast on few different rows.

    Parameters
    ----------
    columns : whole numbers from 0 on, arrays of one length.

    Examples
    --------
    >>> rows, where = distinct(np.array([8, 2, 8]), np.array([1, 4, 1]))
    >>> rows.tolist(), where.tolist()
    ([[2, 4], [8, 1]], [1, 0, 1])
    """
    keys, sizes = np.zeros(len(columns[0]), dtype=np.int64), [int(column.max(initial=0)) + 1 for column in columns]
    for column, size in zip(columns, sizes, strict=True):
        keys = keys * size + column.astype(np.int64)
    unique_keys = np.unique(keys)
    return np.stack(np.unravel_index(unique_keys, sizes), axis=1), np.searchsorted(unique_keys, keys)
