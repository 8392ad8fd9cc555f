"""Which of many policies are possible at all: what `Policy` and `Policy.check` refuse one by one, as one mask."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.planner.model import Model
from commeff.planner.policies import Count, Policies
from commeff.planner.policy import SCHEDULES

Mask = NDArray[np.bool_]


def feasible(model: Model, policies: Policies, cluster: Cluster, global_batch: Count, uneven: bool = False) -> Mask:
    """True where a policy makes sense by itself and fits the model, the cluster and the batch. Memory is not asked.

    It says yes exactly where `Policy.check` does not raise; a law holds the two together. With `uneven`, layers need
    not divide into equal pieces: yes where some `stages` would do.

    >>> from commeff.planner import Policy
    >>> model, cluster = Model(24, 2048, 16, 1024, 51200), Cluster.named("a100_selene", gpus=8)
    >>> many = Policies.of([Policy(tensor=8), Policy(pipeline=5, data=2), Policy(tensor=4, pipeline=2, micro_batch=3)])
    >>> feasible(model, many, cluster, global_batch=64)
    array([ True, False, False])
    """
    if policies.precision not in cluster.gpu.peak_flops:
        return np.zeros(len(policies), dtype=bool)
    found = sensible(policies) & fits_model(model, policies)
    found &= has_layers(model, policies, uneven)
    found &= policies.tensor * policies.pipeline * policies.data == cluster.gpus
    found &= global_batch % (policies.data * policies.micro_batch) == 0
    rounds = policies.micro_batches(global_batch) % policies.pipeline == 0
    return np.asarray(found & (rounds | (policies.chunks == 1)), dtype=bool)


def sensible(policies: Policies) -> Mask:
    """What a policy's own fields allow: equal replicas, chunks where a schedule has them, methods with partners."""
    plain = (policies.gradients > 0) & ~np.asarray(policies.compresses, dtype=bool)
    found = policies.data % policies.workers == 0
    found &= (policies.chunks == 1) | (policies.schedule == SCHEDULES.index("interleaved"))
    found &= plain | (policies.workers > 1)
    found &= (policies.period == 1) | (policies.periodic > 0)
    return found & ((policies.degree == 1) | (policies.gossip > 0))


def fits_model(model: Model, policies: Policies) -> Mask:
    """Heads, feed-forward and keys divide over the tensor ranks, and so does the sequence where it is split."""
    t, keys = policies.tensor, model.key_heads
    found = (model.heads % t == 0) & (model.ffn_width % t == 0)
    found &= np.maximum(t, keys) % np.minimum(t, keys) == 0
    return found & ((model.sequence % t == 0) | ~np.asarray(policies.sequence_parallel, dtype=bool))


def has_layers(model: Model, policies: Policies, uneven: bool) -> Mask:
    """Every piece of the pipeline gets as many layers as the others, or with `uneven` at least one."""
    pieces = policies.pipeline * policies.chunks
    return (model.layers >= pieces) if uneven else (model.layers % pieces == 0)
