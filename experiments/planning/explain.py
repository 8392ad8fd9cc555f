"""What would make a step faster: twice as much of all that a machine has, and other policies beside this one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from commeff.cluster import Cluster
from commeff.experiments.planning.plan import changed_words
from commeff.experiments.planning.question import Question
from commeff.planner import Policies, Policy, Prediction
from commeff.planner.policies import CONTEXTS, RECOMPUTES, SCHEDULES
from commeff.planner.search.space import is_canonical

SMALL = 1e-3  # step of a difference that stands for a derivative
SHOWN = 5  # policies
ROUNDING = 1e-12  # share of a step that sums in another order may differ by


def faster(cluster: Cluster, factor: float) -> Iterator[tuple[str, Cluster]]:
    """The cluster with one thing better at a time; a latency is divided by the factor.

    Parameters
    ----------
    cluster : the GPUs and the links between them.
    factor : how many times as good.

    Examples
    --------
    >>> [name for name, _ in faster(Cluster.named("a100_selene"), 2)]  # doctest: +ELLIPSIS
    ['GPU peak FLOP/s', 'GPU memory', 'GPU memory bandwidth', 'bandwidth in a node', ... 'bandwidth to the host']
    """
    gpu = cluster.gpu
    peaks = {name: factor * peak for name, peak in gpu.peak_flops.items()}
    yield "GPU peak FLOP/s", replace(cluster, gpu=replace(gpu, peak_flops=peaks))
    yield "GPU memory", replace(cluster, gpu=replace(gpu, memory_bytes=factor * gpu.memory_bytes))
    yield "GPU memory bandwidth", replace(cluster, gpu=replace(gpu, memory_bandwidth=factor * gpu.memory_bandwidth))
    for name, where in (("intra", "in a node"), ("inter", "of a NIC")):
        link = getattr(cluster, name)
        yield f"bandwidth {where}", replace(cluster, **{name: replace(link, bandwidth=factor * link.bandwidth)})
        yield f"latency {where}", cluster.with_latency(**{name: 1 / factor})
    if gpu.host_bandwidth is not None:
        yield "bandwidth to the host", replace(cluster, gpu=replace(gpu, host_bandwidth=factor * gpu.host_bandwidth))


def explain(question: Question, policy: Policy, prediction: Prediction) -> dict[str, list[dict[str, Any]]]:
    """What a better machine saves of a step, and what the best neighbouring policies save. Of a policy that fits they
    are faster and fit too; of one that does not, those that fit come first.

    "derivative" is  -d log(step) / d log(what is better):  0.3 says that one percent more of it saves 0.3 % of the
    step. A step is a sum of products of counts and of seconds a byte, a FLOP or a message, so derivatives add up to 1.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    policy : the policy to be explained.
    prediction : what the policy costs.
    """
    now = prediction.step_seconds

    def saved(better: Question) -> float:
        share = 1 - better.predict(policy).step_seconds / now
        return share if abs(share) > ROUNDING else 0.0

    pairs = zip(better(question, 2), better(question, 1 + SMALL), strict=True)
    machine = [
        {"better": name, "saved_by_twice": saved(twice), "derivative": saved(little) / SMALL}
        for (name, twice), (_, little) in pairs
    ]
    policies = [
        {"change": change, "step_seconds": new.step_seconds, "saved": 1 - new.step_seconds / now, "fits": new.fits}
        for change, new in neighbours(question, policy)
        if not prediction.fits or (new.fits and new.step_seconds < now)
    ]
    return {
        "machine": sorted(machine, key=lambda row: -row["saved_by_twice"]),
        "policies": sorted(policies, key=lambda row: (not row["fits"], row["step_seconds"]))[:SHOWN],
    }


def better(question: Question, factor: float) -> Iterator[tuple[str, Question]]:
    """The question with one thing better at a time, of the cluster or of the CPU that launches kernels.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    factor : how many times as good; below 1: worse.
    """
    for name, cluster in faster(question.cluster, factor):
        yield name, replace(question, cluster=cluster)
    launch = question.constants.kernel_seconds / factor
    yield "kernel launches", replace(question, constants=replace(question.constants, kernel_seconds=launch))


def neighbours(question: Question, policy: Policy) -> Iterator[tuple[str, Prediction]]:
    """Policies with one choice changed, the data-parallel ranks filling the cluster, and what each costs.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    policy : the policy that they stand beside.
    """
    for change in _changes(policy):
        new = {**{name: getattr(policy, name) for name in ("tensor", "context", "pipeline")}, **change}
        data, rest = divmod(policy.gpus, new["tensor"] * new["context"] * new["pipeline"])
        workers = new.get("workers", data if 1 < policy.workers == policy.data else policy.workers)
        with suppress(ValueError):
            if rest == 0:
                other = question.replaced(policy, **{**change, "data": data, "workers": workers})
                if is_canonical(Policies.of([other])).all():
                    yield changed_words(policy, other), question.predict(other)


def _changes(policy: Policy) -> Iterator[dict[str, Any]]:
    names = ["tensor", "context", "expert", "pipeline", "micro_batch"]
    names += ["chunks"] * (policy.schedule == "interleaved") + ["workers"] * (policy.workers > 1)
    for name in names:
        value = getattr(policy, name)
        yield from ({name: other} for other in (2 * value, value // 2) if 2 * other in (value, 4 * value))
    nothing = {"recompute_every": 1, "recompute_stages": 0}
    for recompute in RECOMPUTES:
        if recompute != policy.recompute:
            yield {"recompute": recompute, **(nothing if recompute == "none" else {})}
    again, stages = "full" if policy.recompute == "none" else policy.recompute, policy.recompute_stages
    for count in {1, policy.pipeline // 2, stages - 1, stages + 1} - {0, stages}:
        yield {"recompute": again, "recompute_stages": count}
    if policy.recompute == "full":
        yield {"offload_checkpoints": not policy.offload_checkpoints}
    yield from ({"zero": stage} for stage in range(4) if stage != policy.zero)
    if policy.zero == 3:
        yield from ({"unit": 2 * policy.unit or 1}, {"reshard": not policy.reshard})
        yield {"prefetch": int(policy.prefetch != 1)}
    yield from ({"context": max(policy.context, 2), "context_by": by} for by in CONTEXTS if by != policy.context_by)
    for schedule in SCHEDULES:
        if policy.pipeline > 1 and schedule != policy.schedule:
            yield {"schedule": schedule, "chunks": 2 if schedule == "interleaved" else 1}
    yield {"sequence_parallel": not policy.sequence_parallel}
