"""Step time and memory of many policies at once: where the parts come together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.planner.block import Pass, embedding_pass, head_pass, layer_pass
from commeff.planner.constants import MEASURED, Constants
from commeff.planner.memory import PipelineStages, memory, worker_memory
from commeff.planner.model import Model
from commeff.planner.policies import SCHEDULES, Count, Numbers, Policies, PolicySetting
from commeff.planner.traffic import WorkerTraffic, boundary_seconds, optimizer_seconds, sharing_seconds, tied_seconds

DECISIVE = (  # what one micro-batch depends on
    *("tensor", "context", "pipeline", "data", "micro_batch", "chunks", "recompute", "sequence_parallel", "overlap"),
    *("partition_checkpoints", "offload_checkpoints", "recompute_every", "expert", "context_by"),
)


class StageSeconds(NamedTuple):
    """Seconds of one micro-batch on a piece, on a stage, all chunks together, or on all stages, added up.

    Attributes
    ----------
    forward : forward pass.
    backward : whole backward pass.
    weights : of `backward`: gradients of weights.
    """

    forward: Numbers
    backward: Numbers
    weights: Numbers


@dataclass(frozen=True, eq=False)
class StepParts:
    """Seconds of one micro-batch: a layer, the head, the embedding, and the boundary between two stages, which only
    overlap="full" hides, behind the computing of a piece: a stage waits for what it works on.

    Attributes
    ----------
    layer : one layer.
    head : logits and loss.
    embedding : the lookup of tokens.
    boundary : seconds from a stage to the next, and back.
    hides : share of `boundary` that computing can hide.
    """

    layer: Pass
    head: Pass
    embedding: Pass
    boundary: Numbers
    hides: Numbers

    @classmethod
    def of(cls, policies: Policies, setting: PolicySetting) -> StepParts:
        """Price the pieces of a model on a cluster."""
        kinds, inverse = policies.unique(DECISIVE)
        if len(kinds) < len(policies):
            return cls.of(kinds, setting)[inverse]
        layer, head, embedding = (price(policies, setting) for price in (layer_pass, head_pass, embedding_pass))
        hides = policies.hidden("pipeline", setting.constants)
        return cls(layer, head, embedding, boundary_seconds(policies, setting), hides)

    @classmethod
    def both(cls, policies: Policies, setting: PolicySetting) -> tuple[StepParts, StepParts]:
        """On stages that recompute, and on those that keep everything."""
        return cls.of(policies, setting), cls.of(replace(policies, recompute=0 * policies.recompute), setting)

    def __getitem__(self, where: NDArray[np.int64]) -> StepParts:
        """The seconds at some places."""
        return StepParts(*(array[where] for array in vars(self).values()))

    def hidden(self, layers: Count) -> tuple[Numbers, Numbers]:
        """The part of `boundary` that a piece of so many layers hides, on the way forward and back."""
        rooms = self.layer.forward_room, self.layer.backward_room
        ahead, back = (self.hides * np.minimum(self.boundary, layers * room) for room in rooms)
        return ahead, back

    def piece(self, layers: Count) -> StageSeconds:
        """The seconds of a piece of so many layers and of sending; a zero-bubble schedule moves what hides nothing."""
        ahead, back = self.hidden(layers)
        forward = layers * self.layer.forward_total + self.boundary - ahead
        backward = layers * self.layer.backward_total + self.boundary - back
        return StageSeconds(forward, backward, np.maximum(layers * self.layer.weights - back, 0.0))


def bubble_seconds(
    schedule: Numbers,
    stages: Numbers,
    chunks: Numbers,
    micro_batches: Numbers,
    slowest: StageSeconds,
    total: StageSeconds,
) -> Numbers:
    """Idle seconds of the slowest stage.

    GPipe and 1F1B wait while the first micro-batch passes the other stages and the last one comes back: total -
    slowest, which is (p-1) (F + B) on equal stages (Huang 2019; Narayanan 2019). Interleaved: 1/v of it (Narayanan
    2021). Naive: in every micro-batch. ZB-H1 (Qi 2024) does gradients of weights meanwhile: while the last micro-batch
    comes back, one on each stage that it passes, and those of min(m-1, p-1) that the slowest put off, as far as they
    fit between the passes of a neighbour:

        (p-1) (F + B - W) - min(m-1, p-1) min(W, B - W, F),    one third of 1F1B's where F = B - W = W,

    and at least (p-1) F, as the first micro-batch has to come. All five equal the event loop on equal stages.

    Parameters
    ----------
    schedule : places in `SCHEDULES`.
    stages : stages of the pipeline.
    chunks : pieces of the model on each stage.
    micro_batches : micro-batches of each rank in a step.
    slowest : seconds of a micro-batch on the slowest stage.
    total : seconds of a micro-batch on all stages together.
    """
    forward, backward, late = (
        np.where(stages > 1, pipeline - stage, 0.0) for pipeline, stage in zip(total, slowest, strict=True)
    )
    others, neighbours = forward + backward, np.maximum(stages - 1, 1)
    room = np.minimum(slowest.backward - slowest.weights, slowest.forward)
    back = late * (1 - 1 / neighbours) + slowest.weights
    behind = np.minimum(micro_batches - 1, stages - 1) * np.minimum(slowest.weights, room)
    zero_bubble = np.maximum(others - back - behind, forward)
    is_a = [schedule == SCHEDULES.index(name) for name in ("naive", "interleaved", "zero_bubble")]
    return np.select(is_a, [micro_batches * others, others / chunks, zero_bubble], others)


@dataclass(frozen=True, eq=False)
class StepEstimate:
    """Seconds and bytes by part, arrays over the policies; they add up to the step and to the fullest rank's memory.

    Attributes
    ----------
    seconds : of a step by part, each an array over the policies.
    bytes : on the fullest rank by part, each an array over the policies.
    """

    seconds: dict[str, Numbers]
    bytes: dict[str, Numbers]

    @property
    def step_seconds(self) -> Numbers:
        """Seconds of one optimizer step."""
        return np.sum(np.broadcast_arrays(*self.seconds.values()), axis=0)

    @property
    def memory_bytes(self) -> Numbers:
        """Bytes on the fullest rank."""
        return np.sum(np.broadcast_arrays(*self.bytes.values()), axis=0)


def estimate(
    model: Model, policies: Policies, cluster: Cluster, global_batch: Count, constants: Constants = MEASURED
) -> StepEstimate:
    """Price policies with equal pieces. They are taken to be possible: `Policy.check` says which are not.

    Parameters
    ----------
    model : the transformer to be trained.
    policies : the policies to be priced.
    cluster : the GPUs and the links between them.
    global_batch : sequences in a step, over all ranks.
    constants : what a real machine reaches of its data sheet.

    Examples
    --------
    >>> from commeff.planner import Policy
    >>> model, cluster = Model(24, 2048, 16, 1024, 51200), Cluster.named("a100_selene", gpus=8)
    >>> many = Policies.of([Policy(data=8), Policy(tensor=8), Policy(tensor=2, pipeline=2, data=2)])
    >>> estimate(model, many, cluster, global_batch=64).step_seconds.shape
    (3,)
    """
    setting = PolicySetting(model, cluster, global_batch, constants)
    pieces, m = StepParts.of(policies, setting), policies.micro_batches(setting)
    slowest, total = stage_parts(policies, model, pieces)
    work = StageSeconds(slowest["forward"], slowest["backward"], slowest["weights"])
    bubble = bubble_seconds(policies.schedule, policies.pipeline, policies.chunks, m, work, total)
    seconds = {name: m * slowest[name] for name in ("compute", "recompute", "tensor", "pipeline", "offload")}
    seconds["bubble"] = bubble
    return finish(policies, setting, pieces, PipelineStages.even(policies, setting), seconds)


def stage_parts(policies: Policies, model: Model, pieces: StepParts) -> tuple[dict[str, Numbers], StageSeconds]:
    """Seconds of one micro-batch on the slowest stage by part, and of all stages together. The stages have equal
    layers; the first has the embedding too and the last the head.
    """
    p, v = policies.pipeline, policies.chunks
    layers, layer, head, embedding = model.layers / p, pieces.layer, pieces.head, pieces.embedding
    piece, at_end = pieces.piece(layers / v), head.total >= embedding.total

    def at_ends(of: str) -> Numbers:
        ends = [getattr(end, of) for end in (head, embedding)]
        return np.where(p == 1, ends[0] + ends[1], np.where(at_end, *ends))

    slowest = {
        "forward": v * piece.forward + at_ends("forward_total"),
        "backward": v * piece.backward + at_ends("backward_total"),
        "weights": v * piece.weights + at_ends("weights"),
        "compute": layers * (layer.forward + layer.backward) + at_ends("forward") + at_ends("backward"),
        "recompute": layers * layer.recomputed + at_ends("recomputed"),
        "tensor": layers * layer.tensor + at_ends("tensor"),
        "pipeline": v * (2 * pieces.boundary - sum(pieces.hidden(layers / v))),
        "offload": layers * (layer.host_forward + layer.host_backward),
    }
    total = StageSeconds(
        p * v * piece.forward + head.forward_total + embedding.forward_total,
        p * v * piece.backward + head.backward_total + embedding.backward_total,
        p * v * piece.weights + head.weights + embedding.weights,
    )
    return slowest, total


def finish(
    policies: Policies, setting: PolicySetting, pieces: StepParts, stages: PipelineStages, seconds: dict[str, Numbers]
) -> StepEstimate:
    """Add what comes once a step to the seconds of the pipeline, and the memory.

    No second hides two messages, so nothing faster makes a step of equal stages slower. Gradients of a worker's ranks,
    and of workers where the method can send them in blocks, hide behind the last micro-batch's backward pass of a
    stage. What a method sends before it has the gradient, or waits for steps later, hides behind all that the pipeline
    does beside sending, and behind what is left of the layers' passes, what ZeRO-2 and ZeRO-3 send in every
    micro-batch.

    Parameters
    ----------
    pieces : seconds of one micro-batch through each piece.
    stages : what stands on each stage.
    seconds : of the pipeline by part.
    """
    layers, layer = setting.model.layers / policies.pipeline, pieces.layer
    counts, expert_counts = stages.parameters(policies, setting.model), stages.experts(policies, setting.model)
    spread, largest = counts.max(axis=0), counts.argmax(axis=0)[None]
    fullest_layers, fullest_embeddings, experts = (
        np.take_along_axis(np.broadcast_to(count, counts.shape), largest, 0)[0]
        for count in (stages.layers, stages.embeddings, expert_counts)
    )
    parameters = spread - experts * (policies.expert - 1)
    weights = policies.states[0] * parameters
    held = np.where(policies.zero >= 1, spread, parameters)  # of which each rank has its share
    sharing = sharing_seconds(policies, setting, parameters, experts)
    nothing = np.zeros_like(weights)
    between = WorkerTraffic(nothing, nothing, [], nothing, nothing)
    if not policies.no_exchange:
        from commeff.planner.worker_traffic import worker_traffic  # with torch

        between = worker_traffic(policies, setting, fullest_layers, fullest_embeddings, weights)
    remembered = between.memory[None] if stages.even_layers else worker_memory(policies, setting, stages)
    once = sharing.gradients + between.behind_backward
    share = np.broadcast_to(policies.hidden("data", setting.constants), once.shape)
    v = policies.chunks
    ahead, back = pieces.hidden(layers / v)
    last_backward = layers * layer.backward_room - v * back
    behind = share * np.minimum(once, last_backward)
    fraction = np.divide(sharing.gradients, once, out=np.ones_like(once), where=once > 0)
    passes = policies.micro_batches(setting)
    sending = layers * (layer.tensor + layer.hidden_forward + layer.hidden_backward)
    sending = sending + 2 * v * pieces.boundary
    room = np.maximum(sum(seconds.values()) - passes * sending - behind, 0.0)
    waiting, free = between.hide(room, share)
    free_share = np.divide(free, room, out=np.zeros_like(room), where=room > 0)
    one_forward = layers * layer.forward_room - v * ahead
    gathers = sharing.exposed(free_share * passes * one_forward, free_share * (passes * last_backward - behind), share)
    seconds = {
        **seconds,
        "data": fraction * (once - behind) + gathers + tied_seconds(policies, setting),
        "workers": (1 - fraction) * (once - behind) + waiting + between.exposed,
        "optimizer": optimizer_seconds(policies, setting, held, between.remembering * (held / spread)),
    }
    return StepEstimate(seconds, memory(policies, setting, stages, remembered))
