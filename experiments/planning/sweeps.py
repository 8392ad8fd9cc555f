"""Which link makes communicating less pay; what each ZeRO stage holds, and the largest model of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from commeff.cluster import Cluster
from commeff.experiments.planning.bandwidth import planned
from commeff.experiments.planning.evidence import said
from commeff.experiments.planning.question import OF_STAGE_3, Question
from commeff.planner import MEASURED, Model, Policies, Policy, WorkerMethod, estimate

BANDWIDTHS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 200, 400, 800)  # Gb/s of one NIC
RANKS = (1, 8, 64, 512)  # data-parallel, of the largest models
HEAD = 128  # of the family of largest models: n layers, n heads of 128
HELD = ("weights", "gradients", "optimizer")
BETWEEN = ("workers", "zero", *OF_STAGE_3, "method", "stages")  # what a bandwidth sweep chooses
ALONG = (*BETWEEN, "data", "pipeline", "schedule", "chunks")  # what the largest models go through


@dataclass(frozen=True)
class Sweep:
    """Seconds that a way needs for the work of one step of psgd, at every bandwidth.

    Parameters
    ----------
    way : what the worker axis does; the steps that it needs are part of the seconds.
    seconds : at each bandwidth, with the number of workers and the ZeRO stage that are best there.
    pays_below : the largest bandwidth (Gb/s) of those tried at which it beats psgd; None if it never does.
    """

    way: WorkerMethod
    seconds: tuple[float, ...]
    pays_below: float | None


def bandwidth_sweep(question: Question, policy: Policy, ways: Sequence[WorkerMethod]) -> list[Sweep]:
    """Every way on the policy's layout, at every bandwidth of a NIC.

    Tensor and pipeline ranks, micro-batch, schedule and recomputation stay; the workers and the ZeRO stage within them
    are the best that fit. One of the ways is psgd, with which the others are compared.
    """
    seconds_by_way = {
        way: tuple(map(pace.seconds, BANDWIDTHS)) for way in ways for pace in [planned(question, policy, way)]
    }
    plain = next(seconds for way, seconds in seconds_by_way.items() if way.is_plain)
    if not np.isfinite(plain).any():
        raise ValueError(
            "layout of a bandwidth sweep must fit with some ZeRO stage, got one that fits with none; take more ranks"
        )
    sweeps = []
    for way, seconds in seconds_by_way.items():
        better = [x for x, value, plain_value in zip(BANDWIDTHS, seconds, plain, strict=True) if value < plain_value]
        sweeps.append(Sweep(way, seconds, max(better, default=None)))
    return sweeps


def sweep_rows(sweeps: Sequence[Sweep]) -> list[dict[str, str]]:
    """A line for each way: seconds at some bandwidths, and where it starts to pay."""
    best = [min(sweep.seconds[i] for sweep in sweeps) for i in range(len(BANDWIDTHS))]
    lines = []
    for sweep in sweeps:
        cells = {
            f"{x:g}": "does not fit" if not np.isfinite(value) else f"{value:.3g}{'*' if value == least else ''}"
            for x, value, least in zip(BANDWIDTHS, sweep.seconds, best, strict=True)
        }
        pays = "-" if sweep.way.method == "psgd" else _pays(sweep)
        lines.append({"way": sweep.way.name, "steps": said(sweep.way), **cells, "pays at": pays})
    return lines


def _pays(sweep: Sweep) -> str:
    """Up to which bandwidth it beats psgd."""
    if sweep.pays_below is None:
        return "none"
    return "all" if sweep.pays_below == BANDWIDTHS[-1] else f"{sweep.pays_below:g} Gb/s and less"


def shaped(n: int, like: Model) -> Model:
    """The n-th of a family of GPTs: n layers, n heads of 128; 96 is GPT-3.

    >>> shaped(96, Model(1, 128, 1, 2048, 50257)).parameters // 10**9
    174
    """
    return Model(layers=n, hidden=HEAD * n, heads=n, sequence=like.sequence, vocab=like.vocab)


def largest(like: Model, cluster: Cluster, policy: Policy) -> list[dict[str, float]]:
    """Parameters of the largest GPT that fits, for data-parallel ranks and ZeRO stages; tensor ranks, recomputation
    and micro-batch as in `policy`, no pipeline. "states" counts 16 bytes for each parameter and nothing else, as the
    lecture does.
    """
    if like.experts > 1:
        raise ValueError(f"experts must be 1 with the largest model, got {like.experts}: it is a dense GPT")
    policy = replace(policy, pipeline=1, data=1, workers=1, chunks=1, stages=None, schedule="1f1b")
    policy.check(shaped(policy.tensor * policy.context, like), cluster.with_gpus(policy.gpus), policy.micro_batch)
    records = []
    for ranks in RANKS:
        row: dict[str, float] = {"data": ranks}
        for zero in range(4):
            row[f"zero={zero}"] = float(_largest(like, cluster, replace(policy, data=ranks, zero=zero)))
            row[f"states zero={zero}"] = cluster.gpu.memory_bytes * policy.tensor / states(zero, policy.context * ranks)
        records.append(row)
    return records


def states(zero: int, ranks: int) -> float:
    """Bytes for each parameter: 2 weights, 2 gradients, 12 optimizer. Stage 1 shares the last, 2 and 3 the others too.

    >>> [states(zero, 64) for zero in range(4)]
    [16.0, 4.1875, 2.21875, 0.25]
    """
    return sum(size / (ranks if zero >= stage else 1) for size, stage in ((2.0, 3), (2.0, 2), (12.0, 1)))


def zero_stages(question: Question, policy: Policy) -> list[dict[str, float]]:
    """Bytes on a rank by ZeRO stage: "textbook" counts 16 for each parameter and nothing else, the rest are ours."""
    if policy.expert > 1:
        raise ValueError(f"expert must be 1 with the ZeRO stages, got {policy.expert}: the textbook spreads no experts")
    rows = []
    for zero in range(4):
        one = replace(policy, zero=zero)
        prediction = question.predict(one)
        parts = prediction.breakdown["bytes"]
        held = {name: parts[name] for name in HELD}
        textbook = states(zero, policy.shard) / (policy.tensor * policy.pipeline)
        row = {"zero": zero, "textbook": question.model.parameters * textbook, **held, "states": sum(held.values())}
        rows.append({**row, "others": prediction.memory_bytes - row["states"], "all": prediction.memory_bytes})
    return rows


def _largest(like: Model, cluster: Cluster, policy: Policy) -> int:
    """By bisection: memory grows with n. 0 if not even one layer fits."""
    wide = cluster.with_gpus(max(cluster.per_node, -(-policy.gpus // cluster.per_node) * cluster.per_node))
    one = Policies.of([policy])

    def fits(n: int) -> bool:
        held = estimate(shaped(n, like), one, wide, policy.data * policy.micro_batch, MEASURED).memory_bytes
        return bool(held[0] <= cluster.gpu.memory_bytes)

    low, high = 0, 4096
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return shaped(low, like).parameters if low else 0
