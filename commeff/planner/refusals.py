"""Why a policy is not possible: one list of refusals, asked of a single policy or of a million.

A refusal is a condition over arrays and the sentence that it is told in. `Policy` raises the sentence of the first one
that holds; a search leaves out where any does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from commeff.cluster import Cluster
from commeff.planner.model import Model
from commeff.planner.policies import SCHEDULES, Count, Mask, Policies, Setting, distinct

if TYPE_CHECKING:
    from commeff.planner.policy import Policy


class OwnRefusal(NamedTuple):
    """What the fields of a policy do not allow together.

    Attributes
    ----------
    holds : for which policies it is true.
    sentence : the message for one policy.
    """

    holds: Callable[[Policies], Mask]
    sentence: Callable[[Policy], str]


class Refusal(NamedTuple):
    """What the model, the cluster or the batch does not allow.

    Attributes
    ----------
    plays : whether it builds strategies, so that it is asked last and only of what no other refuses.
    """

    holds: Callable[[Policies, Setting], Mask]
    sentence: Callable[[Policy, Setting], str]
    plays: bool = False


OWN: Sequence[OwnRefusal] = (
    OwnRefusal(
        lambda p: p.data % p.workers != 0,
        lambda p: (
            f"data must be a multiple of workers, got data={p.data} that does not divide into "
            f"workers={p.workers}: replicas are of equal size"
        ),
    ),
    OwnRefusal(
        lambda p: ~p.plain & (p.workers == 1),
        lambda p: (
            f"workers must be at least 2 with method={p.worker_method.name}, got 1: they are the replicas that "
            "talk; give workers"
        ),
    ),
    OwnRefusal(
        lambda p: (p.chunks > 1) & (p.schedule != SCHEDULES.index("interleaved")),
        lambda p: f"chunks must be 1 with schedule={p.schedule}, got {p.chunks}; take schedule=interleaved",
    ),
)


def _unknown_precision(policies: Policies, setting: Setting) -> Mask:
    return np.full(len(policies), policies.precision not in setting.cluster.gpu.peak_flops)


def _keys_do_not_fit(policies: Policies, setting: Setting) -> Mask:
    t, keys = policies.tensor, setting.model.key_heads
    return np.asarray(np.maximum(t, keys) % np.minimum(t, keys) != 0)


def _no_equal_pieces(policies: Policies, setting: Setting) -> Mask:
    pieces, layers = policies.pipeline * policies.chunks, setting.model.layers
    return (layers < pieces) if setting.uneven else np.asarray(layers % pieces != 0)


def _no_whole_rounds(policies: Policies, setting: Setting) -> Mask:
    rounds = policies.micro_batches(setting) % policies.pipeline == 0
    return np.asarray(~rounds & (policies.chunks > 1))


def _no_strategy(policies: Policies, setting: Setting) -> Mask:
    if policies.alone:
        return np.zeros(len(policies), dtype=bool)
    from commeff.planner.worker_profile import WorkerProfile, refusal  # with torch

    rows, where = distinct(policies.method, policies.workers)
    own = [WorkerProfile.of(method, setting.model, policies.precision) for method in policies.methods]
    refused = [workers > 1 and refusal(own[place], int(workers)) is not None for place, workers in rows]
    return np.array(refused, dtype=bool)[where]


def _strategy_refusal(policy: Policy, setting: Setting) -> str:
    from commeff.planner.worker_profile import WorkerProfile, refusal

    own = WorkerProfile.of(policy.worker_method, setting.model, policy.precision)
    return refusal(own, policy.workers) or ""


REFUSALS: Sequence[Refusal] = (
    Refusal(
        lambda p, s: p.tensor * p.pipeline * p.data != s.cluster.gpus,
        lambda p, s: (
            f"tensor x pipeline x data must be the {s.cluster.gpus} GPUs of {s.cluster.name}, got "
            f"{p.tensor} x {p.pipeline} x {p.data}, which is {p.gpus} GPUs; take gpus={p.gpus} or another policy"
        ),
    ),
    Refusal(_unknown_precision, lambda p, s: p.precision_refusal(s.cluster.gpu)),
    Refusal(
        lambda p, s: s.global_batch % (p.data * p.micro_batch) != 0,
        lambda p, s: f"global_batch must divide into data={p.data} x micro_batch={p.micro_batch}, got {s.global_batch}",
    ),
    Refusal(
        lambda p, s: s.model.heads % p.tensor != 0,
        lambda p, s: f"tensor must divide heads={s.model.heads}, got {p.tensor}",
    ),
    Refusal(
        lambda p, s: s.model.ffn_width % p.tensor != 0,
        lambda p, s: f"tensor must divide ffn_hidden={s.model.ffn_width}, got {p.tensor}",
    ),
    Refusal(
        _keys_do_not_fit,
        lambda p, s: (
            f"tensor must be a multiple of kv_heads={s.model.key_heads} or divide it, got {p.tensor}: a tensor "
            "above kv_heads replicates the heads of keys and values"
        ),
    ),
    Refusal(
        lambda p, s: p.sequence_parallel & (s.model.sequence % p.tensor != 0),
        lambda p, s: f"tensor must divide sequence={s.model.sequence} with sequence_parallel, got {p.tensor}",
    ),
    Refusal(
        _no_equal_pieces,
        lambda p, s: (
            f"pipeline x chunks must divide layers={s.model.layers}, got {p.pipeline} x {p.chunks}; "
            "give stages=(layers of each piece)"
        ),
    ),
    Refusal(
        _no_whole_rounds,
        lambda p, s: (
            f"micro-batches of a rank must be a multiple of pipeline={p.pipeline} with chunks, got "
            f"{s.global_batch // (p.data * p.micro_batch)}; take another micro_batch, or schedule=1f1b"
        ),
    ),
    Refusal(_no_strategy, _strategy_refusal, plays=True),
)


def feasible(model: Model, policies: Policies, cluster: Cluster, global_batch: Count, uneven: bool = False) -> Mask:
    """True where a policy makes sense by itself and fits the model, the cluster and the batch. Memory is not asked.

    With `uneven`, layers need not divide into equal pieces: yes where some `stages` would do.

    Parameters
    ----------
    model : the transformer to be trained.
    policies : the policies to be priced.
    cluster : the GPUs and the links between them.
    global_batch : sequences in a step, over all ranks.
    uneven : whether layers may be cut into unequal stages.

    Examples
    --------
    >>> from commeff.planner import Policy
    >>> model, cluster = Model(24, 2048, 16, 1024, 51200), Cluster.named("a100_selene", gpus=8)
    >>> many = Policies.of([Policy(tensor=8), Policy(pipeline=5, data=2), Policy(tensor=4, pipeline=2, micro_batch=3)])
    >>> feasible(model, many, cluster, global_batch=64)
    array([ True, False, False])
    """
    setting = Setting(model, cluster, global_batch, uneven=uneven)
    allowed = np.ones(len(policies), dtype=bool)
    for own in OWN:
        allowed &= ~own.holds(policies)
    for refusal in REFUSALS:
        if not refusal.plays:
            allowed &= ~refusal.holds(policies, setting)
        elif allowed.any():
            left = np.flatnonzero(allowed)
            allowed[left] = ~refusal.holds(policies[left], setting)
    return allowed
