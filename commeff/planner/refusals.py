"""Why a policy is not possible, asked of a single policy or of a million.

A refusal is a condition over arrays and the sentence that it is told in. `Policy` raises the sentence of the first one
that holds; a search leaves out where any does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from commeff.cluster import Cluster
from commeff.planner.model import Model
from commeff.planner.policies import RECOMPUTES, SCHEDULES, STATES, Count, Mask, Policies, PolicySetting
from commeff.planner.worker_method import WorkerMethod


class Refusal(NamedTuple):
    """Why some policies are not possible: asked of many at once, and told of one.

    Attributes
    ----------
    holds : for which policies it is true; of what a policy does not allow by itself, of them alone, else also of the
        `PolicySetting`.
    sentence : the message for one policy, of the same arguments.
    """

    holds: Callable[..., Mask]
    sentence: Callable[..., str]


OWN: tuple[Refusal, ...] = (
    Refusal(
        lambda p: p.data % p.workers != 0,
        lambda p: (
            f"data must be a multiple of workers, got data={p.data} that does not divide into "
            f"workers={p.workers}: replicas are of equal size"
        ),
    ),
    Refusal(
        lambda p: ~p.plain & (p.workers == 1),
        lambda p: (
            f"workers must be at least 2 with method={p.worker_method.name}, got 1: they are the replicas that "
            "talk; give workers"
        ),
    ),
    Refusal(
        lambda p: p.shard % p.expert != 0,
        lambda p: (
            f"expert must divide the {p.shard} ranks of a worker, context x data / workers, got {p.expert}: its "
            "experts are spread over them"
        ),
    ),
    Refusal(
        lambda p: (p.chunks > 1) & (p.schedule != SCHEDULES.index("interleaved")),
        lambda p: f"chunks must be 1 with schedule={p.schedule}, got {p.chunks}; take schedule=interleaved",
    ),
    Refusal(
        lambda p: (p.recompute == RECOMPUTES.index("none")) & (p.recompute_every > 1),
        lambda p: f"recompute must be selective or full with recompute_every={p.recompute_every}, got none",
    ),
    Refusal(
        lambda p: (p.zero != 3) & ((p.unit != 1) | (p.prefetch != 1) | ~p.reshard | p.fp32_parameters),
        lambda p: (
            f"zero must be 3 with unit, prefetch, reshard and fp32_parameters, got {p.zero}: they say how weights are "
            "shared"
        ),
    ),
    Refusal(
        lambda p: p.fp8_copies & (p.precision != "fp8"),
        lambda p: f"precision must be fp8 with fp8_copies, got {p.precision}",
    ),
    Refusal(
        lambda p: p.half_gradients & ((p.workers > 1) | (STATES[p.precision][0] > 2)),
        lambda p: (
            f"workers must be 1 and precision 16 bits with half_gradients, got workers={p.workers} precision="
            f"{p.precision}: gradients of workers travel as wide as their method sends them"
        ),
    ),
)


def strategy_refusal(method: WorkerMethod, workers: int, precision: str, model: Model) -> str | None:
    """Why there is no such strategy among so many workers. It is played, so this is asked last, of what nothing else
    refuses.
    """
    if workers == 1:
        return None
    from commeff.planner.worker_profile import WorkerProfile  # with torch

    return WorkerProfile.of(method, model, precision, workers).refusal


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        lambda p, s: p.tensor * p.context * p.pipeline * p.data != s.cluster.gpus,
        lambda p, s: (
            f"{'tensor x context' if p.context > 1 else 'tensor'} x pipeline x data must be the {s.cluster.gpus} GPUs "
            f"of {s.cluster.name}, got {f'{p.tensor} x {p.context}' if p.context > 1 else p.tensor} x {p.pipeline} x "
            f"{p.data}, which is {p.gpus} GPUs; take gpus={p.gpus} or another policy"
        ),
    ),
    Refusal(
        lambda p, s: np.full(len(p), p.precision not in s.cluster.gpu.peak_flops),
        lambda p, s: p.precision_refusal(s.cluster.gpu),
    ),
    Refusal(
        lambda p, s: p.offload_checkpoints & (s.cluster.gpu.host_bandwidth is None),
        lambda p, s: (
            f"offload_checkpoints must be false on {s.cluster.gpu.name}, got true: it is described without a "
            "host_bandwidth"
        ),
    ),
    Refusal(
        lambda p, s: s.global_batch % (p.data * p.micro_batch) != 0,
        lambda p, s: f"global_batch must divide into data={p.data} x micro_batch={p.micro_batch}, got {s.global_batch}",
    ),
    Refusal(
        lambda p, s: s.model.heads % p.tensor != 0,
        lambda p, s: f"tensor must divide heads={s.model.heads}, got {p.tensor}",
    ),
    Refusal(
        lambda p, s: sum(width % p.tensor for width in s.model.inner_widths.values()) != 0,
        lambda p, s: (
            f"tensor must divide {' and '.join(f'{name}={width}' for name, width in s.model.inner_widths.items())}, "
            f"got {p.tensor}"
        ),
    ),
    Refusal(
        lambda p, s: s.model.experts % p.expert != 0,
        lambda p, s: f"expert must divide experts={s.model.experts}, got {p.expert}",
    ),
    Refusal(
        lambda p, s: np.maximum(p.tensor, s.model.key_heads) % np.minimum(p.tensor, s.model.key_heads) != 0,
        lambda p, s: (
            f"tensor must be a multiple of kv_heads={s.model.key_heads} or divide it, got {p.tensor}: a tensor "
            "above kv_heads replicates the heads of keys and values"
        ),
    ),
    Refusal(
        lambda p, s: (
            (s.model.heads % p.head_ranks != 0)
            | (np.maximum(p.head_ranks, s.model.key_heads) % np.minimum(p.head_ranks, s.model.key_heads) != 0)
        ),
        lambda p, s: (
            f"tensor x context must divide heads={s.model.heads} with context_by=all_to_all, and be a multiple of "
            f"kv_heads={s.model.key_heads} or divide it, got {p.tensor} x {p.context}: these ranks split the heads"
        ),
    ),
    Refusal(
        lambda p, s: p.sequence_parallel & (s.model.sequence % p.tensor != 0),
        lambda p, s: f"tensor must divide sequence={s.model.sequence} with sequence_parallel, got {p.tensor}",
    ),
    Refusal(
        lambda p, s: (p.context > 1) & (s.model.sequence % (2 * p.context * p.tensor**p.sequence_parallel) != 0),
        lambda p, s: (
            f"context{' x tensor' * p.sequence_parallel} must divide half of sequence={s.model.sequence}"
            f"{' with sequence_parallel' * p.sequence_parallel}, got {p.context}"
            f"{f' x {p.tensor}' * p.sequence_parallel}"
        ),
    ),
    Refusal(
        lambda p, s: (
            p.pipeline * p.chunks > s.model.units if s.uneven else s.model.units % (p.pipeline * p.chunks) != 0
        ),
        lambda p, s: (
            f"pipeline x chunks must divide layers={s.model.layers}"
            f"{f' / expert_every={s.model.expert_every}' * (s.model.expert_every > 1)}, got {p.pipeline} x {p.chunks}; "
            "give stages=(layers of each piece)"
        ),
    ),
    Refusal(
        lambda p, s: (p.chunks > 1) & (p.micro_batches(s) % p.pipeline != 0),
        lambda p, s: (
            f"micro-batches of a rank must be a multiple of pipeline={p.pipeline} with chunks, got "
            f"{s.global_batch // (p.data * p.micro_batch)}; take another micro_batch, or schedule=1f1b"
        ),
    ),
)


def feasible(model: Model, policies: Policies, cluster: Cluster, global_batch: Count, uneven: bool = False) -> Mask:
    """True where a policy makes sense by itself and fits the model, the cluster and the batch. Memory is not asked.

    With `uneven`, layers need not divide into equal pieces: yes where some `stages` would do.

    Parameters
    ----------
    uneven : whether layers may be cut into unequal stages.

    Examples
    --------
    >>> from commeff.planner import Policy
    >>> model, cluster = Model(24, 2048, 16, 1024, 51200), Cluster.named("a100_selene", gpus=8)
    >>> many = Policies.of([Policy(tensor=8), Policy(pipeline=5, data=2), Policy(tensor=4, pipeline=2, micro_batch=3)])
    >>> feasible(model, many, cluster, global_batch=64)
    array([ True, False, False])
    """
    setting = PolicySetting(model, cluster, global_batch, uneven=uneven)
    allowed = np.ones(len(policies), dtype=bool)
    for rule in OWN:
        allowed &= ~rule.holds(policies)
    for refusal in REFUSALS:
        allowed &= ~refusal.holds(policies, setting)
    left = np.flatnonzero(allowed)
    kinds, inverse = policies[left].unique(("method", "workers"))
    for number, (place, workers) in enumerate(zip(kinds.method, kinds.workers, strict=True)):
        if strategy_refusal(policies.methods[place], int(workers), policies.precision, model) is not None:
            allowed[left[inverse == number]] = False
    return allowed
