"""Bytes on the fullest rank, part by part."""

from __future__ import annotations

import numpy as np

from commeff.planner.arrays import Numbers
from commeff.planner.choices import RECOMPUTES, STATES
from commeff.planner.constants import Constants
from commeff.planner.model import Model
from commeff.planner.policies import Policies
from commeff.planner.stages import PipelineStages


def layer_activations(model: Model, policies: Policies) -> Numbers:
    """Bytes that one layer keeps of one micro-batch for its backward pass, nothing recomputed, 16-bit.

    s b h (10 + 24/t + 5 a s/(h t)) for a GPT block (Korthikanti 2022, Table 2): inputs of two norms and two matrices
    and two dropout masks, 10, on all tensor ranks unless sequence_parallel; queries, keys, values, context 8 and the
    inside of the feed-forward 16, split; softmax, mask and dropped softmax 5 for each score, kept by nobody with
    flash attention or selective recomputation.

    Parameters
    ----------
    model : the transformer to be trained.
    policies : the policies to be priced.
    """
    t, tokens = policies.tensor, policies.tokens(model.sequence)
    shared = 10.0 * tokens * model.hidden / np.where(policies.sequence_parallel, t, 1)
    keys = np.maximum(model.key_width / t, model.head_width)
    split = 4 * model.query_width / t + 4 * keys + (6 if model.gated else 4) * model.ffn_width / t
    kept = policies.recompute != RECOMPUTES.index("selective")
    scores = 0.0 if model.flash_attention else 5.0 * kept * model.heads * model.sequence / t
    return shared + tokens * (split + scores)


def activations(model: Model, policies: Policies, stages: PipelineStages) -> Numbers:
    """Bytes of activations of the layers of each stage. Full recomputation keeps the input of every layer, 2 s b h, and
    works through one layer at a time.

    Parameters
    ----------
    model : the transformer to be trained.
    policies : the policies to be priced.
    stages : what stands on each stage.
    """
    whole = layer_activations(model, policies)
    split = np.where(policies.sequence_parallel | policies.partition_checkpoints, policies.tensor, 1)
    inputs = 2 * policies.tokens(model.sequence) * model.hidden / split * ~policies.offload_checkpoints
    full = policies.recompute == RECOMPUTES.index("full")
    return stages.layers * stages.in_flight * np.where(full, inputs, whole) + full * whole


def worker_memory(model: Model, policies: Policies, stages: PipelineStages) -> Numbers:
    """What the method of the worker axis remembers on a rank of each stage before ZeRO, as its profile says.

    Parameters
    ----------
    model : the transformer to be trained.
    policies : the policies to be priced.
    stages : what stands on each stage.
    """
    from commeff.planner.worker_traffic import alike  # with torch

    rows = []
    for each in zip(*np.broadcast_arrays(stages.layers, stages.embeddings), strict=True):
        row = np.zeros(np.broadcast(*each, policies.workers, policies.tensor).shape)
        for group in alike(model, policies, *each):
            row[group.members] = group.bytes[-1]
        rows.append(row)
    return np.array(rows)


def memory(
    model: Model, policies: Policies, stages: PipelineStages, remembered: Numbers, constants: Constants
) -> dict[str, Numbers]:
    """Bytes by part on the fullest rank. `remembered` is `worker_memory`. Beside the layers, the first stage keeps a
    dropout mask of the embedding for each micro-batch in flight, and the last the fp32 logits of one.

    Parameters
    ----------
    model : the transformer to be trained.
    policies : the policies to be priced.
    stages : what stands on each stage.
    remembered : bytes of the method of the worker axis, before ZeRO.
    constants : what a real machine reaches of its data sheet.
    """
    shard, parameters = policies.shard, stages.parameters(model, policies)
    weights, gradients, optimizer = STATES[policies.precision]
    gathered = (policies.zero == 3) & (shard > 1)  # one layer whole, and the next on its way
    tokens = policies.tokens(model.sequence)
    masks = tokens * model.hidden / np.where(policies.sequence_parallel, policies.tensor, 1)
    layer = model.layer_parameters / policies.tensor
    parts = {
        "weights": weights * (parameters / np.where(policies.zero == 3, shard, 1) + 2 * gathered * layer),
        "gradients": gradients * parameters / np.where(policies.zero >= 2, shard, 1),
        "optimizer": optimizer * parameters / np.where(policies.zero >= 1, shard, 1),
        "activations": activations(model, policies, stages) + stages.first * stages.in_flight * masks,
        "logits": stages.last * 4.0 * tokens * model.vocab / policies.tensor,
        "method": remembered / np.where(policies.zero >= 1, shard, 1),
        "reserve": np.full_like(parameters, constants.reserve_bytes),
    }
    fullest = np.argmax(sum(parts.values()), axis=0)[None]
    shape = (stages.layers.shape[0], fullest.shape[1])
    return {name: np.take_along_axis(np.broadcast_to(part, shape), fullest, axis=0)[0] for name, part in parts.items()}
