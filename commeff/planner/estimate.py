"""Step time and memory of many policies at once: where the parts come together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.planner.block import embedding_pass, head_pass, layer_pass
from commeff.planner.constants import MEASURED, Constants
from commeff.planner.memory import PipelineStages, memory, worker_memory
from commeff.planner.model import Model
from commeff.planner.passes import Pass, SpareSeconds, StageSeconds, bubble_seconds
from commeff.planner.policies import Count, Numbers, Policies, PolicySetting
from commeff.planner.traffic import WorkerTraffic, boundary_seconds, optimizer_seconds, sharing_seconds, tied_seconds

DECISIVE = (  # what one micro-batch depends on
    *("tensor", "context", "pipeline", "data", "micro_batch", "chunks", "recompute", "sequence_parallel", "overlap"),
    *("partition_checkpoints", "offload_checkpoints", "recompute_every", "expert", "context_by"),
)


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

    def exposed(self, layers: Count) -> Numbers:
        """What is left of `boundary`, both ways."""
        return 2 * self.boundary - sum(self.hidden(layers))

    def spare(self, layers: Count) -> SpareSeconds:
        """The seconds of a piece of so many layers that hide nothing yet, and those of what it sends."""
        ahead, back = self.hidden(layers)
        layer, weights = self.layer, self.piece(layers).weights
        sending = layers * (layer.tensor + layer.hidden_forward + layer.hidden_backward) + 2 * self.boundary
        return SpareSeconds(layers * layer.forward_room - ahead, layers * layer.backward_room - back, weights, sending)

    def piece(self, layers: Count) -> StageSeconds:
        """The seconds of a piece of so many layers and of sending; a zero-bubble schedule moves what hides nothing."""
        ahead, back = self.hidden(layers)
        forward, backward, weights = self.layer.seconds
        weights = np.maximum(layers * weights - back, 0.0)
        return StageSeconds(layers * forward + self.boundary - ahead, layers * backward + self.boundary - back, weights)

    def parts(self, layers: Count, exposed: Numbers, end: Pass) -> dict[str, Count]:
        """The seconds of a stage by part: its layers, what it sends to others, and its embedding or head."""
        whole = self.layer.times(layers, end)
        return {
            "compute": whole.forward + whole.backward,
            "recompute": whole.recomputed,
            "tensor": whole.tensor,
            "pipeline": exposed,
            "offload": whole.host_forward + whole.host_backward,
        }


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
    p, v = policies.pipeline, policies.chunks
    layers, head, embedding = model.layers / p, pieces.head, pieces.embedding
    both, larger = head.times(1, embedding), head.where(head.total >= embedding.total, embedding)
    end, piece = both.where(p == 1, larger), pieces.piece(layers / v)  # the first stage has the one, the last the other
    slowest, total = piece.times(v, end.seconds), piece.times(p * v, both.seconds)
    parts = pieces.parts(layers, v * pieces.exposed(layers / v), end)

    def pipeline(more: StageSeconds, once: Numbers) -> tuple[dict[str, Numbers], int]:
        longer = StageSeconds(*(seconds[0] for seconds in more))
        stages = longer.times(1, slowest), longer.times(p, total)
        bubble = bubble_seconds(policies.schedule, p, v, m, *stages)
        return {name: m * seconds for name, seconds in parts.items()} | {"bubble": bubble}, 0

    spare = SpareSeconds(*((v * seconds)[None] for seconds in pieces.spare(layers / v)))
    return finish(policies, setting, PipelineStages.even(policies, setting), spare, pipeline)


def finish(
    policies: Policies,
    setting: PolicySetting,
    stages: PipelineStages,
    spare: SpareSeconds,
    pipeline: Callable[[StageSeconds, Numbers], tuple[dict[str, Numbers], int]],
) -> StepEstimate:
    """Add what ranks of a worker and workers send to the seconds of the pipeline, and the memory.

    No second hides two messages, so nothing faster makes a step slower. What ZeRO-2 and ZeRO-3 send in a pass hides
    behind that pass, and what is left makes it longer, also for the stages that wait for it: with ZeRO-2 in the last
    micro-batch too, which scatters nothing, so a step over four stages was up to 5 % too long. Every stage is taken to
    send what the fullest one does. Gradients of a worker's ranks, and of workers where the method can send them in
    blocks, hide behind a stage's last backward pass. What a method sends before it has the gradient, or waits for steps
    later, hides behind all that the pipeline does beside sending.

    Parameters
    ----------
    stages : what stands on each stage.
    spare : of one micro-batch on each stage, (stages, policies); one stage stands for equal ones.
    pipeline : called with what each stage's passes take more, and with what it has to wait once after its last backward
        pass; both may be negative. Gives the seconds of the slowest stage by part, and which it is.
    """
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
    behind = share * np.minimum(once, spare.backward)
    fraction = np.divide(sharing.gradients, once, out=np.ones_like(once), where=once > 0)
    passes = policies.micro_batches(setting)
    waiting, free_share = nothing, np.ones_like(once)
    if between.waiting:
        none = np.zeros_like(spare.sending)
        alone, _ = pipeline(StageSeconds(none, none, none), none)
        room = np.maximum(sum(alone.values()) - (passes * spare.sending + behind).max(axis=0), 0.0)
        waiting, free = between.hide(room, share)
        free_share = np.divide(free, room, out=np.zeros_like(room), where=room > 0)
    hidden, hidden_back, hidden_last = (
        np.minimum(hideable, free_share * room)
        for hideable, room in (
            (sharing.hideable_forward, spare.forward),
            (sharing.hideable_backward, spare.backward),
            (sharing.hideable_backward, spare.backward - behind),
        )
    )
    ahead, back = sharing.forward - share * hidden, sharing.backward - share * hidden_back
    sooner = -share * np.maximum(hidden_back + spare.weights - spare.backward, 0.0)  # what hides is not put off
    scatters = policies.zero == 3  # after the last micro-batch too, whose gradients ZeRO-2 adds to the others' first
    last = scatters * (sharing.backward - share * hidden_last)
    seconds, at = pipeline(StageSeconds(ahead, back, sooner), once - behind + last - back)
    left, in_passes = (once - behind)[at], (passes * ahead + (passes - 1) * back + last)[at]
    seconds = {
        **seconds,
        "data": fraction * left + in_passes + tied_seconds(policies, setting),
        "workers": (1 - fraction) * left + waiting + between.exposed,
        "optimizer": optimizer_seconds(policies, setting, held, between.remembering * (held / spread)),
    }
    return StepEstimate(seconds, memory(policies, setting, stages, remembered))
