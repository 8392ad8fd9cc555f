"""The answers of `commeff plan`, as plain data: one policy priced, and what a training run of it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from itertools import product
from typing import Any

from commeff.cluster import Cluster
from commeff.experiments.planning.question import Question
from commeff.experiments.planning.worker_words import method_words
from commeff.planner import Plan, Policy, Prediction, WorkerMethod

GIB = 2**30
SENT = ("tensor", "pipeline", "data", "workers")  # parts of a step that are communication which nothing hides
ALWAYS = ("tensor", "pipeline", "data", "micro_batch", "schedule", "zero", "recompute")  # printed even by default
LEAST = 0.0005  # share of a step that a reason names
MEANING = {
    "compute": "computing: matrix products and element-wise kernels",
    "recompute": "computing again what recompute= did not keep; more memory or less in it would save that",
    "tensor": "what tensor, context and expert ranks send; fewer of them, or faster links between them",
    "pipeline": "sending activations from stage to stage",
    "offload": "waiting for inputs of layers on their way to the host and back; a faster link to it",
    "bubble": "the pipeline's bubble; more micro-batches, fewer stages, or another schedule",
    "data": "averaging gradients within workers; faster NICs, or larger batches",
    "gathers": "gathering weights and scattering gradients in each pass; larger micro-batches, or faster NICs",
    "workers": "communication between workers; a longer period, or a compressor",
    "optimizer": "the optimizer's pass over memory; ZeRO would share it",
}


def describe(question: Question, policy: Policy, prediction: Prediction) -> dict[str, Any]:
    """All figures of one policy, for people and for `--json`.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    policy : the policy to be priced.
    prediction : what the policy costs.
    """
    model, cluster = question.model, question.cluster
    tokens = question.global_batch * model.sequence
    parts = shares(Plan(policy, prediction))
    first, second = (MEANING[name] for name in sorted(parts, key=lambda name: -parts[name])[:2])
    if first == MEANING["compute"] and parts["compute"] < 0.7:
        first = f"{first.partition(':')[0]}, and then {second}"
    return {
        "model": question.name,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "cluster": cluster.name,
        "gpu": cluster.gpu.name,
        "gpus": cluster.gpus,
        "global_batch": question.global_batch,
        "policy": policy_words(policy),
        "step_seconds": prediction.step_seconds,
        "step_range": None if question.is_bound else prediction.step_range,
        "tokens_per_second": tokens / prediction.step_seconds,
        "tflops_per_gpu": prediction.tflops_per_gpu,
        "mfu": prediction.mfu,
        "hfu": prediction.hfu,
        "fits": prediction.fits,
        "why": fit(question, policy, prediction),
        "limits": first,
        "seconds": prediction.breakdown["seconds"],
        "memory_bytes": prediction.memory_bytes,
        "gpu_memory_bytes": cluster.gpu.memory_bytes,
        "bytes": prediction.breakdown["bytes"],
        "run": run(question.tokens, tokens, prediction.step_seconds, cluster),
    }


def shares(plan: Plan, beside: Plan | None = None) -> dict[str, float]:
    """The parts of a step, by their names in `MEANING`, as shares of it: they add up to 1. Or how much more each takes
    than in another plan, as shares of that one's step.
    """
    own, other = (_seconds(each) if each else {} for each in (plan, beside))
    whole = (beside or plan).prediction.step_seconds
    return {name: (own.get(name, 0.0) - other.get(name, 0.0)) / whole for name in {**own, **other}}


def _seconds(plan: Plan) -> dict[str, float]:
    names = {"data": "gathers"} if plan.policy.zero == 3 else {}
    return {names.get(part, part): seconds for part, seconds in plan.prediction.breakdown["seconds"].items()}


def reason(question: Question, plan: Plan, first: Plan) -> str:
    """What a step of the first plan consists of, or what another loses and wins against it; and the room in memory."""
    alone = plan.policy == first.policy
    parts = sorted(shares(plan, None if alone else first).items(), key=lambda part: -part[1])
    words = [f"{100 * share:{'' if alone else '+'}.1f} % {name}" for name, share in parts if abs(share) >= LEAST]
    room = question.cluster.gpu.memory_bytes / plan.prediction.memory_bytes - 1
    return f"{', '.join(words) or 'as the first'}; room for {100 * room:.0f} % more memory"


def exposed(prediction: Prediction) -> float:
    """Seconds of a step in which nothing but communication happens.

    Parameters
    ----------
    prediction : of a policy.
    """
    return sum(prediction.breakdown["seconds"][part] for part in SENT)


def policy_words(policy: Policy, **others: Any) -> str:
    """The fields that differ from the defaults, as words that `commeff plan` reads; or others that are given.

    >>> policy_words(Policy(tensor=8, data=2, recompute="full"))
    'tensor=8 pipeline=1 data=2 micro_batch=1 schedule=1f1b zero=0 recompute=full'
    """
    plain, worker = Policy(), WorkerMethod().fields
    values = {field.name: getattr(policy, field.name) for field in fields(policy) if field.name not in worker} | others
    words = [
        f"{name}={_value(values[name])}" for name in values if name in ALWAYS or values[name] != getattr(plain, name)
    ]
    if not policy.worker_method.is_plain:
        words += method_words(policy.worker_method)
    return " ".join([*words, *([f"collective={policy.collective}"] if policy.collective != "auto" else [])])


def changed_words(policy: Policy, other: Policy) -> str:
    """The fields in which another policy differs, as words that `commeff plan` reads after those of the first.

    >>> changed_words(Policy(sequence_parallel=True, data=2), Policy(tensor=2))
    'tensor=2 data=1 sequence_parallel=false'
    """
    values = {field.name: getattr(other, field.name) for field in fields(policy)}
    return " ".join(f"{name}={_value(value)}" for name, value in values.items() if value != getattr(policy, name))


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def run(tokens: float | None, step_tokens: int, seconds: float, cluster: Cluster) -> dict[str, float | None] | None:
    """A training run of some tokens, `step_tokens` of them in a step: days, GPU-hours, US dollars.

    Parameters
    ----------
    tokens : of the whole run; None: no run was described.
    step_tokens : tokens in a step.
    seconds : of a step.
    cluster : the GPUs and the links between them.
    """
    if tokens is None:
        return None
    steps = tokens / step_tokens
    hours = steps * seconds / 3600
    gpu_hours = hours * cluster.gpus
    price = cluster.gpu.hour_cost
    dollars = None if price is None else price * gpu_hours
    return {"tokens": tokens, "steps": steps, "days": hours / 24, "gpu_hours": gpu_hours, "dollars": dollars}


def fit(question: Question, policy: Policy, prediction: Prediction) -> str:
    """Why it fits, or what fills the memory and the change that costs least time and makes room.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    policy : the policy to be priced.
    prediction : what the policy costs.
    """
    need, have = prediction.memory_bytes / GIB, question.cluster.gpu.memory_bytes / GIB
    if prediction.fits:
        return f"fits: {need:.1f} of {have:.1f} GiB on the fullest rank"
    parts = prediction.breakdown["bytes"]
    largest = max(parts, key=lambda name: parts[name])
    reason = f"does not fit: {need:.1f} of {have:.1f} GiB, {largest} the largest part ({parts[largest] / GIB:.1f})"
    better = [pair for pair in changed(question, policy) if pair[1].fits]
    if not better:
        tried = "recompute, zero, micro_batch and sequence_parallel"
        one_gpu_each = policy.workers > 1 and policy.workers == policy.data
        split = "; each GPU is a worker: with fewer workers= ranks share what zero= divides" if one_gpu_each else ""
        return f"{reason}; no change of {tried} makes room{split}"
    best, priced = min(better, key=lambda pair: pair[1].step_seconds)
    return f"{reason}; {changed_words(policy, best)} would fit, at {priced.step_seconds:.4g} s a step"


def changed(question: Question, policy: Policy) -> Iterator[tuple[Policy, Prediction]]:
    """The policy with more recomputed, more shared, smaller micro-batches, split sequences; whatever is possible."""
    choices: dict[str, Iterable[Any]] = {
        "recompute": dict.fromkeys((policy.recompute, "selective", "full")),
        "recompute_stages": dict.fromkeys((policy.recompute_stages, 0)),
        "zero": range(policy.zero, 4),
        "micro_batch": dict.fromkeys((policy.micro_batch, 1)),
        "sequence_parallel": dict.fromkeys((policy.sequence_parallel, policy.tensor > 1)),
    }
    for values in product(*choices.values()):
        with suppress(ValueError):
            new = question.replaced(policy, **dict(zip(choices, values, strict=True)))
            yield new, question.predict(new)
