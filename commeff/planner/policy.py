"""A policy: how a model is laid over GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from commeff import require
from commeff.cluster import GPU, PRECISIONS, Cluster
from commeff.planner.model import Model, count
from commeff.planner.policies import BUCKET, CHOICES, SWITCHES, Policies, PolicySetting
from commeff.planner.refusals import OWN, REFUSALS, strategy_refusal
from commeff.planner.worker_method import PLAIN, StrategyFactory, WorkerMethod


@dataclass(frozen=True)
class Policy:
    """How a training step is spread over GPUs.

    Ranks are numbered tensor first, then context, shard, worker and pipeline stage, so tensor groups sit in a node
    where they fit.

    Parameters
    ----------
    tensor, pipeline, data : ranks of tensor, pipeline and data parallelism; their product, times `context`, is the
        number of GPUs.
    workers : data-parallel replicas that a communication-efficient method keeps; context x data / workers ranks shard
        each of them.
    micro_batch : sequences in one pass.
    chunks : pieces of the model on each stage (interleaved).
    zero : what the ranks of a worker share: 1 optimizer, 2 and gradients, 3 and weights.
    recompute : what the backward pass computes again: none, selective (the attention core) or full (every layer).
    sequence_parallel : norms, dropouts and their activations are split over the tensor ranks too (Korthikanti 2022).
    overlap : whose messages hide behind computing: none; tensor (of tensor and context ranks), data (of data-parallel
        ranks and workers), or both, partial; or full, all that dependencies allow, those between stages too.
    method, collective : what `workers` do: see `WorkerMethod`.
    stages : layers of every chunk of the pipeline in order, where they are not to be equal.
    partition_checkpoints, offload_checkpoints : ZeRO-R: inputs kept for recomputation are split over the tensor
        ranks, or moved to the host.
    context : ranks that split every sequence, each with two of 2 context equal parts, so that all have as much to do
        where a mask hides half.
    context_by : keys and values go round these ranks in a ring (arXiv 2310.01889); or, with all_to_all, each rank has
        the whole sequence of some heads during attention (DeepSpeed-Ulysses, arXiv 2309.14509).
    unit : of ZeRO-3, layers that are gathered at once (FSDP's units); 0: each matrix by itself (DeepSpeed's).
    prefetch : of ZeRO-3, units that are gathered ahead of the one that is computed; 0: each is waited for.
    reshard : of ZeRO-3, weights are given up after the forward pass and gathered again for the backward pass.
    fp32_parameters : of ZeRO-3, shards are fp32 and are gathered in 16 bits (FSDP's mixed precision); the optimizer
        keeps no second copy.
    recompute_every : k, of which layers `recompute` holds: every k-th.
    loss_chunks : pieces in which logits and their loss are computed, one after the other.
    fragmentation : share of what is allocated that lies between allocations, 0.05 to 0.15 of PyTorch's; none by
        default.
    half_gradients : bf16 gradients are summed and sent in 16 bits, and copied to fp32 for the step.
    bucket : gradients that are copied at once to be averaged.
    fp8_copies : of fp8, weights are kept in 16 bits too, beside those in fp8 and those transposed.
    expert : ranks over which the experts of a layer are spread, neighbours among the ranks of one worker (`experts`).
    recompute_stages : of a pipeline, how many stages recompute, the first ones, which keep most; 0: all.

    Raises
    ------
    ValueError
        Where the fields do not make sense together, in one line.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    workers: int = 1
    micro_batch: int = 1
    chunks: int = 1
    schedule: str = "1f1b"
    zero: int = 0
    recompute: str = "none"
    sequence_parallel: bool = False
    precision: str = "bf16"
    overlap: str = "partial"
    method: str | StrategyFactory = PLAIN
    stages: tuple[int, ...] | None = None
    partition_checkpoints: bool = False
    offload_checkpoints: bool = False
    collective: str = "auto"
    context: int = 1
    unit: int = 1
    reshard: bool = True
    fp32_parameters: bool = False
    recompute_every: int = 1
    loss_chunks: int = 1
    fragmentation: float = 0.0
    half_gradients: bool = False
    bucket: int = BUCKET
    fp8_copies: bool = False
    expert: int = 1
    recompute_stages: int = 0
    context_by: str = "ring"
    prefetch: int = 1

    def __post_init__(self) -> None:
        ranks, passes = ("tensor", "pipeline", "data", "context", "workers", "expert"), ("micro_batch", "chunks")
        whole = (*ranks, *passes, "recompute_every", "loss_chunks")
        count(**{name: getattr(self, name) for name in whole})
        require.truth(**{name: getattr(self, name) for name in SWITCHES})
        if type(self.zero) is not int or self.zero not in range(4):
            raise ValueError(f"zero must be 0 (off), 1, 2 or 3, got {self.zero!r}")
        for name, what in {"unit": "layers, or 0 for matrices", "bucket": "gradients", "prefetch": "units"}.items():
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ValueError(f"{name} must be a whole number of at least 0, got {value!r}: {what}")
        if type(self.fragmentation) not in (int, float) or not 0 <= self.fragmentation < 1:
            raise ValueError(f"fragmentation must be a share in [0, 1), such as 0.1, got {self.fragmentation!r}")
        if type(self.recompute_stages) is not int or not 0 <= self.recompute_stages < self.pipeline:
            below = f"a whole number below pipeline={self.pipeline}"
            raise ValueError(f"recompute_stages must be {below}, or 0 for all stages, got {self.recompute_stages!r}")
        for name, choices in CHOICES.items():
            require.one_of(choices, **{name: getattr(self, name)})
        require.one_of(PRECISIONS, precision=self.precision)
        if self.recompute_stages and self.recompute == "none":
            raise ValueError("recompute must be selective or full with recompute_stages, got none")
        one = Policies.of([self])
        for refusal in OWN:
            if refusal.holds(one).any():
                raise ValueError(refusal.sentence(self))
        if self.stages is not None:
            self._check_stages(self.stages)

    def _check_stages(self, stages: tuple[int, ...]) -> None:
        pieces = self.pipeline * self.chunks
        if not isinstance(stages, tuple) or not all(type(layers) is int for layers in stages):
            raise ValueError(f"stages must be a tuple of whole numbers, such as (3, 5), got {stages!r}")
        if len(stages) != pieces:
            raise ValueError(
                f"stages must name the {pieces} pieces of pipeline={self.pipeline} x chunks={self.chunks}, got "
                f"{len(stages)} pieces"
            )
        if min(stages) < 1:
            raise ValueError(f"stages must have at least 1 layer each, got {stages}")

    @cached_property
    def worker_method(self) -> WorkerMethod:
        """The method of the worker axis."""
        return WorkerMethod(self.method, self.collective)

    @property
    def shard(self) -> int:
        """Ranks that share the states of a worker."""
        return self.context * self.data // self.workers

    @property
    def gpus(self) -> int:
        """Number of GPUs: the product of all ranks."""
        return self.tensor * self.pipeline * self.data * self.context

    def layers_of(self, model: Model) -> tuple[int, ...]:
        """Layers of every piece of the pipeline in order."""
        pieces = self.pipeline * self.chunks
        return self.stages or (model.layers // pieces,) * pieces

    @property
    def recomputing(self) -> int:
        """Stages that recompute."""
        return self.recompute_stages or self.pipeline

    def precision_refusal(self, gpu: GPU) -> str:
        """Why a GPU without the precision cannot be taken."""
        precisions = " ".join(gpu.peak_flops)
        return f"precision must be one of {precisions} on {gpu.name}, got {self.precision}: it has no {self.precision}"

    def check_precision(self, gpu: GPU) -> None:
        """Refuse a precision in which the GPU has no peak."""
        if self.precision not in gpu.peak_flops:
            raise ValueError(self.precision_refusal(gpu))

    def check(self, model: Model, cluster: Cluster, global_batch: int) -> None:
        """Refuse a policy that does not fit the model, the cluster or the batch, in one line."""
        count(global_batch=global_batch)
        one, setting = Policies.of([self]), PolicySetting(model, cluster, global_batch, uneven=self.stages is not None)
        for refusal in REFUSALS:
            if refusal.holds(one, setting).any():
                raise ValueError(refusal.sentence(self, setting))
        reason = strategy_refusal(self.worker_method, self.workers, self.precision, model)
        if reason is not None:
            raise ValueError(reason)
        if self.stages is not None and any(layers % model.expert_every for layers in self.stages):
            raise ValueError(f"stages must be multiples of expert_every={model.expert_every}, got {self.stages}")
        if self.stages is not None and sum(self.stages) != model.layers:
            raise ValueError(
                f"stages must add up to layers={model.layers}, got {self.stages}, which are {sum(self.stages)} layers"
            )
