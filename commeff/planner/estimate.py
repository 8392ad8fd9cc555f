"""Step time and memory of many policies at once: where the parts come together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commeff.cluster import Cluster
from commeff.planner.block import Pass, embedding_pass, head_pass, layer_pass
from commeff.planner.constants import MEASURED, Constants
from commeff.planner.memory import memory
from commeff.planner.model import Model
from commeff.planner.policies import Count, Numbers, Policies
from commeff.planner.schedules import Stage, bubble_seconds
from commeff.planner.stages import Stages
from commeff.planner.traffic import (
    boundary_seconds,
    optimizer_seconds,
    sharing_seconds,
    tied_seconds,
    worker_seconds,
)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Seconds of one micro-batch: a layer, the head, the embedding, and the boundary between two stages, which only
    overlap="full" hides, behind the layers of a piece: a stage waits for what it works on.
    """

    layer: Pass
    head: Pass
    embedding: Pass
    boundary: Numbers

    @classmethod
    def of(cls, model: Model, policies: Policies, cluster: Cluster, constants: Constants) -> Pieces:
        """On a cluster."""
        layer, boundary = layer_pass(model, policies, cluster, constants), boundary_seconds(model, policies, cluster)
        piece = model.layers / (policies.pipeline * policies.chunks) * layer.there
        return cls(
            layer,
            head_pass(model, policies, cluster, constants),
            embedding_pass(model, policies, cluster, constants),
            boundary - policies.hidden(0.0) * np.minimum(boundary, piece),
        )


@dataclass(frozen=True, eq=False)
class Estimate:
    """Arrays over the policies: seconds and bytes by part; their sums are the step and the fullest rank's memory."""

    seconds: dict[str, Numbers]
    bytes: dict[str, Numbers]

    @property
    def step_seconds(self) -> Numbers:
        """Of one optimizer step."""
        return np.sum(np.broadcast_arrays(*self.seconds.values()), axis=0)

    @property
    def memory_bytes(self) -> Numbers:
        """On the fullest rank."""
        return np.sum(np.broadcast_arrays(*self.bytes.values()), axis=0)


def estimate(
    model: Model, policies: Policies, cluster: Cluster, global_batch: Count, constants: Constants = MEASURED
) -> Estimate:
    """Price policies with equal pieces. They are taken to be possible: `Policy.check` says which are not.

    >>> from commeff.planner import Policy
    >>> model, cluster = Model(24, 2048, 16, 1024, 51200), Cluster.named("a100_selene", gpus=8)
    >>> many = Policies.of([Policy(data=8), Policy(tensor=8), Policy(tensor=2, pipeline=2, data=2)])
    >>> estimate(model, many, cluster, global_batch=64).step_seconds.shape
    (3,)
    """
    pieces = Pieces.of(model, policies, cluster, constants)
    m = policies.micro_batches(global_batch)
    slowest, total = stage_parts(model, policies, pieces)
    work = Stage(slowest["forward"], slowest["backward"], slowest["weights"])
    bubble = bubble_seconds(policies.schedule, policies.pipeline, policies.chunks, m, work, total)
    seconds = {name: m * slowest[name] for name in ("compute", "recompute", "tensor", "pipeline")}
    seconds["bubble"] = bubble
    stages = Stages.even(model, policies, m)
    return finish(model, policies, cluster, constants, pieces, stages, m, seconds)


def stage_parts(model: Model, policies: Policies, pieces: Pieces) -> tuple[dict[str, Numbers], Stage]:
    """Seconds of one micro-batch on the slowest stage by part, and of all stages together. The stages have equal
    layers; the first has the embedding too and the last the head.
    """
    layers, p = model.layers / policies.pipeline, policies.pipeline
    layer, head, embedding = pieces.layer, pieces.head, pieces.embedding
    at_end = head.there + head.back >= embedding.there + embedding.back
    send = np.where(p > 1, policies.chunks * pieces.boundary, 0.0)

    def on_stage(of: str) -> Numbers:
        ends = [getattr(piece, of) for piece in (head, embedding)]
        return layers * getattr(layer, of) + np.where(p == 1, ends[0] + ends[1], np.where(at_end, *ends))

    parts = {of: on_stage(of) for of in ("there", "back", "weights", "tensor", "again")}
    slowest = {
        "forward": parts["there"] + send,
        "backward": parts["back"] + send,
        "weights": parts["weights"],
        "compute": on_stage("forward") + on_stage("backward"),
        "recompute": parts["again"],
        "tensor": parts["tensor"],
        "pipeline": 2 * send,
    }
    total = Stage(
        p * (layers * layer.there + send) + head.there + embedding.there,
        p * (layers * layer.back + send) + head.back + embedding.back,
        model.layers * layer.weights + head.weights + embedding.weights,
    )
    return slowest, total


def finish(
    model: Model,
    policies: Policies,
    cluster: Cluster,
    constants: Constants,
    pieces: Pieces,
    stages: Stages,
    micro_batches: Numbers,
    seconds: dict[str, Numbers],
) -> Estimate:
    """Add what comes once a step to the seconds of the pipeline, and the memory.

    Gradients of a worker's ranks, and of workers, hide behind the last micro-batch's backward pass of a stage; gossip,
    which mixes what was there before the step, behind a whole micro-batch; weights that ZeRO-3 gathers, behind all
    computation that hides nothing else.
    """
    layers = model.layers / policies.pipeline
    parameters = stages.parameters(model, policies).max(axis=0)
    sharing = sharing_seconds(parameters, policies, micro_batches, cluster)
    between = worker_seconds(model, parameters, policies, cluster, constants)
    tail = layers * pieces.layer.back
    once = sharing.gradients + between
    window = np.where(policies.gossip > 0, tail + layers * pieces.layer.there, tail)
    hidden = policies.hidden(constants.hidden_share)
    behind = np.minimum(once, window)
    left = once - hidden * behind
    share = np.divide(sharing.gradients, once, out=np.ones_like(left), where=once > 0)
    room = np.maximum(seconds["compute"] - behind, 0.0)
    gathers = sharing.gathers - hidden * np.minimum(sharing.gathers, room)
    seconds = {
        **seconds,
        "data": share * left + gathers + tied_seconds(model, policies, cluster),
        "workers": (1 - share) * left,
        "optimizer": optimizer_seconds(parameters, policies, cluster, constants),
    }
    return Estimate(seconds, memory(model, policies, stages, constants))
