"""Bytes on the fullest rank, part by part; and what stands on the stages that may be the fullest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from commeff.planner.experts import feed_forwards, routed_tokens
from commeff.planner.model import Model
from commeff.planner.policies import RECOMPUTES, SCHEDULES, STATES, YES, Numbers, Policies, PolicySetting

if TYPE_CHECKING:
    from commeff.planner.policy import Policy

COMMUNICATOR = 4e8  # NCCL's buffers of one: 16 channels of a ring and of a tree, both ways, 5 to 10 MB each


@dataclass(frozen=True, eq=False)
class PipelineStages:
    """Arrays (stages, policies). Where all pieces are equal, only the first stage and the last can be the fullest:
    those between have less in flight than the first and nothing else.

    Parameters
    ----------
    layers : on the stage.
    embeddings : V x h matrices: one on the first stage and one on the last (tied copies are copies), or all on one.
    first, last : whether it is the stage of the embedding, of the head.
    in_flight : micro-batches whose activations it keeps at once, in units of the whole stage.
    recomputing : whether it recomputes what the policy says.
    """

    layers: Numbers
    embeddings: Numbers
    first: Numbers
    last: Numbers
    in_flight: Numbers
    recomputing: Numbers = field(default_factory=YES)

    @classmethod
    def even(cls, policies: Policies, setting: PolicySetting) -> PipelineStages:
        """The first stage and the last of equal ones."""
        row = np.array([[True], [False]])
        in_flight = micro_batches_in_flight(policies, setting, ~row * (policies.pipeline - 1))
        single = np.broadcast_to(policies.pipeline == 1, in_flight.shape)
        return cls(
            layers=np.broadcast_to(setting.model.layers / policies.pipeline, in_flight.shape),
            embeddings=np.where(single, 1 if setting.model.tied_embeddings else 2, 1),
            first=single | row,
            last=single | ~row,
            in_flight=in_flight,
        )

    @classmethod
    def uneven(cls, policy: Policy, setting: PolicySetting) -> PipelineStages:
        """Every stage of one policy."""
        p, both = policy.pipeline, 1 if setting.model.tied_embeddings else 2
        place, layers = np.arange(p), np.reshape(policy.layers_of(setting.model), (-1, p)).sum(axis=0)
        in_flight = micro_batches_in_flight(Policies.of([policy]), setting, place)
        ends = (place == 0).astype(int) + (place == p - 1)
        embeddings = ends if p > 1 else np.array([both])
        columns = (layers, embeddings, place == 0, place == p - 1, in_flight, place < policy.recomputing)
        return cls(*(column[:, None] for column in columns))

    @property
    def even_layers(self) -> bool:
        """Whether all stages hold as many layers and embeddings."""
        return all(bool((count == count[0]).all()) for count in (self.layers, self.embeddings))

    def parameters(self, policies: Policies, model: Model) -> Numbers:
        """On each of a stage's ranks, before ZeRO, and before experts are spread; keys and values of a shared head once
        more for each rank that replicates it.
        """
        t = policies.tensor
        repeated = np.maximum(t / model.key_heads, 1) - 1
        layer = model.layer_parameters / t + 2 * model.hidden * model.key_width / t * repeated
        return self.layers * layer + self.embeddings * model.embedding_parameters / t

    def experts(self, policies: Policies, model: Model) -> Numbers:
        """Of them those of experts that are spread, on each rank that holds them."""
        if model.experts == 1:
            return np.zeros((1, 1))
        return self.layers * model.expert_parameters / (policies.tensor * policies.expert)


def micro_batches_in_flight(policies: Policies, setting: PolicySetting, stage: Numbers) -> Numbers:
    """Micro-batches that a stage, from 0, keeps at once, in units of a whole stage.

    Naive 1; GPipe m; 1F1B min(m, p - i) on stage i; ZB-H1 min(m, p) on all, as late stages put off more gradients of
    weights; interleaved (p (v-1) + 1 + 2 (p - 1 - i))/v, at most m.
    """
    m, p, v = policies.micro_batches(setting), policies.pipeline, policies.chunks
    ahead = p - 1 - stage
    kinds = ("naive", "gpipe", "zero_bubble")
    is_a = [policies.schedule == SCHEDULES.index(name) for name in kinds]
    most = (p * (v - 1) + 1 + ahead * np.where(v > 1, 2, 1)) / v
    return np.select(is_a, [1, m, np.minimum(m, p)], np.minimum(m, most))


def layer_activations(policies: Policies, setting: PolicySetting, routed: bool = False) -> Numbers:
    """Bytes that one layer, with experts if `routed`, keeps of one micro-batch for its backward pass, nothing
    recomputed, 16-bit.

    s b h (10 + 24/t + 5 a s/(h t)) for a GPT block (Korthikanti 2022, Table 2): inputs of two norms and two matrices
    and two dropout masks, 10, on all tensor ranks unless sequence_parallel; queries, keys, values, context 8 and the
    inside of the feed-forward 16, split; softmax, mask and dropped softmax 5 for each score, kept by nobody with
    flash attention or selective recomputation. Of ranks that split heads, a flash kernel keeps the context of whole
    sequences beside that of their parts. Copies of tokens that experts were sent and what came out of them, 4 for
    each number, are on all tensor ranks.

    In fp8 the inputs of matrices with weights are kept in one byte instead of two. A flash kernel keeps the context in
    16 bits beside it (Transformer Engine 2.20, `_Linear`).
    """
    model, t, tokens = setting.model, policies.tensor, policies.tokens(setting)
    short = int(policies.precision == "fp8")
    shared = (10.0 - 2 * short) * tokens * model.hidden / np.where(policies.sequence_parallel, t, 1)
    if routed:
        shared = shared + (4 - short) * routed_tokens(policies, setting) * model.hidden
    keeps_scores = policies.recompute != RECOMPUTES.index("selective")
    twice = 2 * (model.flash_attention and not short) * (keeps_scores & (policies.head_ranks > t))
    attention = 4 + short * (1 if model.flash_attention else -1) + twice
    split = tokens * attention * model.query_width / t + inner_bytes(policies, setting, routed, short)
    return shared + split + 2 * key_bytes(policies, setting) + 5 * keeps_scores * scores(policies, setting)


def inner_bytes(policies: Policies, setting: PolicySetting, routed: bool, short: int = 0) -> Numbers:
    """Bytes inside the feed-forwards of one layer and micro-batch: 4, 6 if gated, less `short`, for an inner number."""
    inner = sum(rows * width * count for rows, width, count in feed_forwards(policies, setting, routed))
    return np.asarray(((6 if setting.model.gated else 4) - short) * inner)


def key_bytes(policies: Policies, setting: PolicySetting) -> Numbers:
    """Bytes of the keys of one layer and micro-batch on a rank, and of its values: 2 s b h/t, of one head at least;
    of whole sequences where ranks split heads.
    """
    model, t = setting.model, policies.tensor
    width = np.maximum(model.key_width / t, model.head_width * (policies.head_ranks // t))
    return 2 * policies.tokens(setting) * width


def query_bytes(policies: Policies, setting: PolicySetting) -> Numbers:
    """Bytes of the queries of one layer and micro-batch on a rank, and of their context: 2 s b h/t."""
    return 2 * policies.tokens(setting) * setting.model.query_width / policies.tensor


def scores(policies: Policies, setting: PolicySetting) -> Numbers:
    """Scores of one layer and micro-batch that are written to memory: a s^2 b/t, none by flash attention."""
    model, written = setting.model, not setting.model.flash_attention
    return written * policies.tokens(setting) * model.heads * model.sequence / policies.tensor


def checkpoint_bytes(policies: Policies, setting: PolicySetting) -> Numbers:
    """Bytes of the input of one layer and micro-batch that a rank keeps to compute the layer again: 2 s b h."""
    split = np.where(policies.sequence_parallel | policies.partition_checkpoints, policies.tensor, 1)
    return 2 * policies.tokens(setting) * setting.model.hidden / split


def activations(policies: Policies, setting: PolicySetting, stages: PipelineStages) -> Numbers:
    """Bytes of activations of the layers of each stage, and of the output of the stage where others follow, for each
    micro-batch in flight. Full recomputation keeps the input of every layer, 2 s b h; of those on the host one has come
    back.

    One layer at a time goes backward: it has what was computed again, all of it or its scores, and the gradients of
    its widest part: 4 bytes for each score or inner number of the feed-forward, 6 if gated, and 4 s b h beside them. Of
    layers with experts and without it is one that has them, with the gradients of what they were sent.
    Where ranks split a sequence it also has the keys, values and their gradients that come from the rank before, or
    the queries that it sends and gets where they split heads. With sequence_parallel it has the whole gradient of a
    matrix's inputs, 2 s b h, before it is scattered. One buffer is for such inputs gathered, 2 s b h, and for scores, 2
    bytes each (Megatron-LM's global memory buffer). In fp32 and tf32 all bytes are twice as many.
    """
    policies = replace(policies, recompute=policies.recompute * stages.recomputing)
    model, tokens = setting.model, policies.tokens(setting)
    routed, every = model.experts > 1, model.expert_every
    largest, written = layer_activations(policies, setting, routed), scores(policies, setting)
    left = largest if every == 1 else layer_activations(policies, setting) * (1 - 1 / every) + largest / every
    kept, gone = checkpoint_bytes(policies, setting), policies.offload_checkpoints
    selective, full = (policies.recompute == RECOMPUTES.index(name) for name in ("selective", "full"))
    again = np.select([full, selective], [largest + kept * gone, 5 * written], 0.0)
    often = 1 / policies.recompute_every
    layer = often * np.where(full, kept * ~gone, left) + (1 - often) * (left + 5 * selective * written)
    inner = inner_bytes(policies, setting, routed)
    if routed:
        inner = inner + 2 * routed_tokens(policies, setting) * model.hidden
    hidden = 2 * tokens * model.hidden / np.where(policies.sequence_parallel, policies.tensor, 1)
    output = np.where(stages.last, 0.0, hidden)
    to_heads = policies.head_ranks > policies.tensor
    passing = np.where(to_heads, 2 * query_bytes(policies, setting), 4 * key_bytes(policies, setting))
    passing = (policies.context > 1) * passing
    gathered = (policies.sequence_parallel & (policies.tensor > 1)) * 2 * tokens * model.hidden
    buffer = np.maximum(2 * written, gathered)
    widest = np.maximum(4 * written, inner) + 2 * hidden + passing + gathered + buffer
    return policies.wide / 2 * (stages.in_flight * (stages.layers * layer + output) + again + widest)


def worker_memory(policies: Policies, setting: PolicySetting, stages: PipelineStages) -> Numbers:
    """Bytes that the worker axis's method remembers on a rank of each stage before ZeRO, as its profile says."""
    if policies.no_exchange:
        return np.zeros_like(stages.layers, dtype=float)
    from commeff.planner.worker_traffic import alike  # with torch

    rows = []
    for counts in zip(*np.broadcast_arrays(stages.layers, stages.embeddings), strict=True):
        row = np.zeros(np.broadcast(*counts, policies.workers, policies.tensor).shape)
        for group in alike(policies, setting.model, *counts):
            row[group.members] = group.bytes[-1]
        rows.append(row)
    return np.array(rows)


def memory(
    policies: Policies, setting: PolicySetting, stages: PipelineStages, remembered: Numbers
) -> dict[str, Numbers]:
    """Bytes by part on the fullest rank. `remembered` is `worker_memory`. Beside the layers, the first stage keeps a
    dropout mask of the embedding for each micro-batch in flight, and the last, of one, the inputs of its norm and its
    head, 4 s b h, and logits: in 16 bits, in fp32, and their softmax, 10 bytes for each.

    ZeRO-3 holds whole, of the stage's own layers, the unit that it computes and those prefetched, or all without
    `reshard`, and the embeddings; ZeRO-2 and ZeRO-3 the gradients of the unit that is to be scattered. Fp8 weights take
    two bytes as well, since they are kept transposed too; `fp8_copies` are both beside 16-bit weights, of whole layers.
    Where gradients are averaged, in a worker or between workers by psgd, `bucket` of them are copied; with ZeRO-3 only
    where every matrix is a unit. A rank's share of the states of all experts is as large as if they were not spread
    over ranks. Each axis of ranks has a communicator, and beside several of them the ranks of a replica and all ranks
    have one.
    """
    model, shard = setting.model, policies.shard
    positions = stages.first * (0 if model.gated else model.sequence * model.hidden)  # which tensor ranks do not split
    spread, experts = stages.parameters(policies, model) + positions, stages.experts(policies, model)
    parameters = spread - experts * (policies.expert - 1)
    weights, gradients, optimizer = policies.states
    narrow, (wide, _, moments) = policies.fp32_parameters, STATES["fp32"]
    three, tokens = policies.zero == 3, policies.tokens(setting)
    masks = tokens * model.hidden / np.where(policies.sequence_parallel, policies.tensor, 1)
    logits = (8 + weights * (weights < wide)) * tokens * model.vocab / policies.tensor / policies.loss_chunks
    unit = np.minimum(np.maximum(policies.unit, 1), stages.layers)
    ends = stages.embeddings * model.embedding_parameters / policies.tensor + positions
    layer = (parameters - ends - experts) / stages.layers
    live = np.where(policies.reshard, np.minimum((1 + policies.prefetch) * unit, stages.layers), stages.layers)
    axes = sum(
        np.greater(ranks, 1).astype(int)
        for ranks in (policies.tensor, policies.context, policies.pipeline, shard, policies.workers, policies.expert)
    )
    averaged = (shard > 1) | (policies.plain & (policies.workers > 1))
    split = three & (shard > 1)
    flat = split & (policies.unit > 0)
    bucket = np.where(flat, 0.0, np.minimum(policies.bucket, parameters))
    scattered, gathered = unit * layer * (1 - 1 / shard), live * layer + ends
    copied = np.where(split, live, stages.layers) * layer
    one = two = all_three = parameters
    if model.experts > 1:
        every, copies = model.expert_every, policies.copies
        routed = experts * every / stages.layers  # in a layer that has any
        alive = np.ceil(live / every) * routed
        scattered = scattered + np.ceil(unit / every) * routed * (1 - 1 / copies)
        gathered = gathered + alive * (copies > 1)
        copied = copied + np.where(split & (copies > 1), alive, experts)
        one, two, all_three = (np.where(policies.zero >= stage, spread, parameters) for stage in (1, 2, 3))
    whole = np.where(policies.zero >= 2, np.maximum(scattered, ends * (1 - 1 / shard)), 0.0)
    parts = {
        "weights": np.where(narrow, wide, weights) * all_three / np.where(three, shard, 1)
        + weights * split * gathered
        + 2 * policies.fp8_copies * copied,
        "gradients": np.where(narrow, wide, gradients) * two / np.where(policies.zero >= 2, shard, 1)
        + gradients * averaged * np.maximum(bucket, whole),
        "optimizer": np.where(narrow, moments, optimizer) * one / np.where(policies.zero >= 1, shard, 1),
        "activations": activations(policies, setting, stages) + stages.first * stages.in_flight * masks,
        "logits": stages.last * (2 * policies.wide * masks + logits),
        "method": remembered * (one / spread) / np.where(policies.zero >= 1, shard, 1),
        "reserve": setting.constants.reserve_bytes + COMMUNICATOR * (axes + 2 * (axes > 1)) + 0 * parameters,
    }
    parts["reserve"] = parts["reserve"] + policies.fragmentation * sum(parts.values())
    fullest = np.argmax(sum(parts.values()), axis=0)[None]
    shape = (stages.layers.shape[0], fullest.shape[1])
    return {name: np.take_along_axis(np.broadcast_to(part, shape), fullest, axis=0)[0] for name, part in parts.items()}
