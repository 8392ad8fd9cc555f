"""A policy: how a model is laid over GPUs, and the reasons why one cannot be."""

from __future__ import annotations

from dataclasses import dataclass

from commeff.cluster import GPU, PRECISIONS, Cluster
from commeff.planner.checks import chosen, counted, switch
from commeff.planner.methods import METHODS, Compression
from commeff.planner.model import Model

SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved", "zero_bubble")
RECOMPUTES = ("none", "selective", "full")
OVERLAPS = ("none", "partial", "full")


@dataclass(frozen=True)
class Policy:
    """How a training step is spread over GPUs.

    Ranks are numbered tensor first, then shard, worker and pipeline stage, so tensor groups sit in a node where they
    fit.

    Parameters
    ----------
    tensor, pipeline, data : ranks of tensor, pipeline and data parallelism; their product is the number of GPUs.
    workers : data-parallel replicas that a communication-efficient method keeps; data / workers ranks shard each of
        them.
    micro_batch : sequences in one pass.
    chunks : pieces of the model on each stage (interleaved).
    zero : what the ranks of a worker share: 1 optimizer, 2 and gradients, 3 and weights.
    recompute : what the backward pass computes again: none, selective (the attention core) or full (every layer).
    sequence_parallel : norms, dropouts and their activations are split over the tensor ranks too (Korthikanti 2022).
    overlap : none, partial (what Megatron and DDP hide) or full (all that dependencies allow).
    method, period, degree, compressor : what `workers` do: see `commeff.planner.methods`; degree neighbours in
        gossip.
    stages : layers of every chunk of the pipeline in order, where they are not to be equal.
    partition_checkpoints, offload_checkpoints : ZeRO-R: inputs kept for recomputation are split over the tensor
        ranks, or moved to the host.
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
    method: str = "psgd"
    period: int = 1
    compressor: str | None = None
    degree: int = 1
    stages: tuple[int, ...] | None = None
    partition_checkpoints: bool = False
    offload_checkpoints: bool = False

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data", "workers", "micro_batch", "chunks", "period", "degree"):
            counted(name, getattr(self, name))
        for name in ("sequence_parallel", "partition_checkpoints", "offload_checkpoints"):
            switch(name, getattr(self, name))
        if type(self.zero) is not int or self.zero not in range(4):
            raise ValueError(f"zero={self.zero!r} was asked for; ZeRO has the stages 0 (off), 1, 2 and 3")
        chosen("schedule", self.schedule, SCHEDULES)
        chosen("recompute", self.recompute, RECOMPUTES)
        chosen("overlap", self.overlap, OVERLAPS)
        chosen("precision", self.precision, PRECISIONS)
        chosen("method", self.method, tuple(METHODS))
        self._check_method()
        if self.chunks > 1 and self.schedule != "interleaved":
            raise ValueError(f"chunks={self.chunks} needs schedule=interleaved; {self.schedule} has one chunk a stage")
        if self.stages is not None:
            self._check_stages(self.stages)

    def _check_stages(self, stages: tuple[int, ...]) -> None:
        if not isinstance(stages, tuple) or not all(type(layers) is int for layers in stages):
            raise ValueError(f"stages={stages!r} was asked for; it is a tuple of whole numbers, such as (3, 5)")
        if len(stages) != self.pipeline * self.chunks:
            raise ValueError(
                f"stages names {len(stages)} pieces but pipeline={self.pipeline} x chunks={self.chunks} "
                f"has {self.pipeline * self.chunks}"
            )
        if min(stages) < 1:
            raise ValueError(f"stages={stages} leaves a piece without layers; every stage needs at least 1")

    def _check_method(self) -> None:
        method = METHODS[self.method]
        if self.data % self.workers:
            raise ValueError(f"data={self.data} does not divide into workers={self.workers} replicas of equal size")
        if self.method != "psgd" and self.workers == 1:
            raise ValueError(f"method={self.method} needs workers above 1: they are the replicas that talk")
        if self.period > 1 and not method.periodic:
            raise ValueError(
                f"method={self.method} talks every step; period={self.period} is for local_sgd and its kin"
            )
        if self.degree > 1 and not method.gossip:
            raise ValueError(f"method={self.method} has no neighbours; degree={self.degree} is for dsgd and its kin")
        if (self.compressor is not None) != method.compresses:
            with_it = " ".join(name for name, other in METHODS.items() if other.compresses)
            raise ValueError(
                f"method={self.method} {'needs a compressor, such as topk:0.01' if method.compresses else 'has none'}; "
                f"those with a compressor are {with_it}"
            )
        if self.compressor is not None:
            Compression.parse(self.compressor, self.method)

    @property
    def shard(self) -> int:
        """Ranks that ZeRO shares a worker over."""
        return self.data // self.workers

    def layers_of(self, model: Model) -> tuple[int, ...]:
        """Layers of every piece of the pipeline in order."""
        pieces = self.pipeline * self.chunks
        return self.stages or (model.layers // pieces,) * pieces

    def check_precision(self, gpu: GPU) -> None:
        """Refuse a precision in which the GPU has no peak."""
        if self.precision not in gpu.peak_flops:
            raise ValueError(f"{gpu.name} has no {self.precision}; it has {' '.join(gpu.peak_flops)}")

    def check(self, model: Model, cluster: Cluster, global_batch: int) -> None:
        """Refuse a policy that does not fit the model, the cluster or the batch, in one line."""
        gpus = self.tensor * self.pipeline * self.data
        if gpus != cluster.gpus:
            raise ValueError(
                f"tensor={self.tensor} x pipeline={self.pipeline} x data={self.data} is {gpus} GPUs, but "
                f"{cluster.name} has {cluster.gpus}; take gpus={gpus} or another policy"
            )
        self.check_precision(cluster.gpu)
        counted("global_batch", global_batch)
        if global_batch % (self.data * self.micro_batch):
            raise ValueError(
                f"global_batch={global_batch} does not divide into data={self.data} x micro_batch={self.micro_batch}"
            )
        self._check_model(model)
        micro_batches = global_batch // (self.data * self.micro_batch)
        if self.schedule == "interleaved" and self.chunks > 1 and micro_batches % self.pipeline:
            raise ValueError(
                f"interleaved needs a multiple of pipeline={self.pipeline} micro-batches, but each rank has "
                f"{micro_batches}; take another micro_batch, or schedule=1f1b"
            )

    def _check_model(self, model: Model) -> None:
        t = self.tensor
        for what, count in (("heads", model.heads), ("ffn_hidden", model.ffn_width)):
            if count % t:
                raise ValueError(f"{what}={count} does not divide over tensor={t} ranks")
        if max(t, model.key_heads) % min(t, model.key_heads):
            raise ValueError(
                f"tensor={t} and kv_heads={model.key_heads} do not fit; one must be a multiple of the other "
                "(a tensor above kv_heads replicates the heads of keys and values)"
            )
        if self.sequence_parallel and model.sequence % t:
            raise ValueError(
                f"sequence={model.sequence} does not divide over tensor={t} ranks; sequence_parallel splits it"
            )
        pieces = self.pipeline * self.chunks
        if self.stages is None and model.layers % pieces:
            raise ValueError(
                f"layers={model.layers} do not divide into pipeline={self.pipeline} x chunks={self.chunks} equal "
                "pieces; give stages=(layers of each piece)"
            )
        if self.stages is not None and sum(self.stages) != model.layers:
            raise ValueError(f"stages={self.stages} are {sum(self.stages)} layers, but the model has {model.layers}")
