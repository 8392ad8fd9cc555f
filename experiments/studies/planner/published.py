"""Published measurements as planner inputs, with what their tables leave unsaid stated once for each table."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.experiments.planning.question import named
from commeff.planner import Constants, Model, Policies, Policy, StepEstimate, estimate
from commeff.planner.estimate import StepParts
from commeff.planner.policies import RECOMPUTES, PolicySetting

TABLES = Path(__file__).parent / "tables"
MICRO_BATCHES = (1, 2, 4, 8, 16)  # what Megatron's authors may have tried
CHUNKS = tuple(range(1, 9))
SPLITS = ("tensor", "pipeline", "context")
READINGS = ("none", "full")  # what vtrain_single.csv may have recomputed

Row = dict[str, str]


def rows(table: str) -> list[Row]:
    """The rows of tables/TABLE.csv without its comments.

    >>> rows("korthikanti2022_layer")[0]["forward_ms"]
    '7.7'
    """
    with open(TABLES / f"{table}.csv", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


@dataclass(frozen=True, eq=False)
class Cases:
    """Policies of one model on one cluster, and where in a table they stand."""

    model: Model
    policies: Policies
    cluster: Cluster
    global_batch: Any
    places: list[int]

    def price(self, constants: Constants) -> StepEstimate:
        """Price all policies."""
        return estimate(self.model, self.policies, self.cluster, self.global_batch, constants)


def vtrain(recompute: str) -> tuple[list[Cases], NDArray[np.float64]]:
    """vtrain_single.csv: cases, and measured seconds of a step in the table's order.

    fp16 is an assumption of ours; a vocabulary of 50257 is the default of the authors' code. What was recomputed is
    open. Their configurations say use_checkpoint, so all; but with tensor=1 and hidden=2048 the step grows by 1.88 ms
    for each layer and sample, which with full recomputation would be 238 TFLOP/s, element-wise kernels included, where
    megatron2021.csv has 137 for a larger model. So the fit uses both readings, and the report shows both.
    """
    table = rows("vtrain_single")
    groups: dict[tuple[int, int, int], list[int]] = {}
    for place, row in enumerate(table):
        groups.setdefault((int(row["hidden"]), int(row["layers"]), int(row["gpus"])), []).append(place)
    cases = []
    for (hidden, layers, gpus), places in groups.items():
        policies = Policies.of([_vtrain_policy(table[place], recompute) for place in places])
        batch = np.array([int(table[place]["batch"]) for place in places])
        model = Model(layers=layers, hidden=hidden, heads=16, sequence=1024, vocab=50257)
        cases.append(Cases(model, policies, Cluster.named("a100_selene", gpus=gpus), batch, places))
    return cases, np.array([float(row["iter_time_ms"]) for row in table]) / 1e3


def _vtrain_policy(row: Row, recompute: str) -> Policy:
    return Policy(
        tensor=int(row["tp"]),
        pipeline=int(row["pp"]),
        data=int(row["dp"]),
        micro_batch=int(row["micro_batch"]),
        recompute=recompute,
        precision="fp16",
        overlap="none",
    )


def megatron() -> tuple[list[Cases], NDArray[np.float64]]:
    """megatron2021.csv: every micro-batch and number of chunks that may have been, and measured TFLOP/s of a GPU.

    One rule for what is not stated: the fastest that fits, as the authors say they tuned both.
    """
    table, cases = rows("megatron2021"), []
    for place, row in enumerate(table):
        model = Model(int(row["layers"]), int(row["hidden"]), int(row["heads"]), int(row["seq"]), int(row["vocab"]))
        cluster = Cluster.named("a100_selene", gpus=int(row["gpus"]))
        batch = int(row["batch"])
        policies = [p for p in megatron_policies(row) if possible(p, model, cluster, batch)]
        cases.append(Cases(model, Policies.of(policies), cluster, batch, [place]))
    return cases, np.array([float(row["tflops_per_gpu"]) for row in table])


def megatron_policies(row: Row) -> list[Policy]:
    """What a row leaves open: micro-batch, and chunks where there is a pipeline."""
    pipeline = int(row["pp"])
    return [
        Policy(
            tensor=int(row["tp"]),
            pipeline=pipeline,
            data=int(row["data_parallel"]),
            micro_batch=micro_batch,
            chunks=chunks,
            schedule="interleaved" if pipeline > 1 else "1f1b",
            recompute="full",
            precision="fp16",
            overlap="none",
        )
        for micro_batch in MICRO_BATCHES
        for chunks in (CHUNKS if pipeline > 1 else (1,))
    ]


def possible(policy: Policy, model: Model, cluster: Cluster, global_batch: int) -> bool:
    """Whether the planner accepts it."""
    try:
        policy.check(model, cluster, global_batch)
    except ValueError:
        return False
    return True


def megatron_best(case: Cases, constants: Constants) -> tuple[float, int]:
    """Seconds of a row's step by the rule, and which of its policies that is."""
    priced = case.price(constants)
    seconds = np.where(priced.memory_bytes <= case.cluster.gpu.memory_bytes, priced.step_seconds, np.inf)
    best = int(np.argmin(seconds))
    return float(seconds[best]), best


def tflops(case: Cases, seconds: float) -> float:
    """TFLOP/s of a GPU, the recomputed forward pass counted."""
    flops = case.global_batch * (case.model.flops + case.model.recomputed_flops("full"))
    return float(flops / seconds / case.cluster.gpus / 1e12)


def korthikanti() -> tuple[list[tuple[Model, Policies, Cluster]], NDArray[np.float64]]:
    """korthikanti2022_layer.csv: one layer of the 22B model, and measured seconds forward and backward, (5, 2)."""
    table, cases = rows("korthikanti2022_layer"), []
    model, cluster = Model(48, 6144, 64, 2048, 51200), Cluster.named("a100_selene", gpus=8)
    for row in table:
        policy = Policy(
            tensor=8,
            micro_batch=4,
            recompute=row["activation_recompute"],
            sequence_parallel=row["sequence_parallel"] == "on",
            precision="fp16",
        )
        cases.append((model, Policies.of([policy]), cluster))
    return cases, np.array([[float(row["forward_ms"]), float(row["backward_ms"])] for row in table]) / 1e3


def nemo() -> tuple[list[Cases], NDArray[np.float64]]:
    """nemo_h100.csv: what may have been recomputed, and measured seconds of a step.

    One rule for what is not stated: Megatron's distributed optimizer (zero=1), sequences split over tensor ranks, the
    default overlap, and the least recomputation that fits.
    """
    table, cases = rows("nemo_h100"), []
    for place, row in enumerate(table):
        model = replace(named(row["model"]), sequence=int(row["sequence"]))
        cluster = Cluster.named("h100_400g", gpus=int(row["gpus"]))
        tensor, pipeline, context = (int(row[name]) for name in SPLITS)
        policy = Policy(
            tensor=tensor,
            pipeline=pipeline,
            context=context,
            data=cluster.gpus // (tensor * pipeline * context),
            micro_batch=int(row["micro_batch"]),
            chunks=int(row["chunks"]),
            schedule="interleaved" if int(row["chunks"]) > 1 else "1f1b",
            zero=1,
            sequence_parallel=tensor > 1,
            precision="fp8",
        )
        policies = Policies.of([replace(policy, recompute=recompute) for recompute in RECOMPUTES])
        cases.append(Cases(model, policies, cluster, int(row["global_batch"]), [place]))
    tokens = np.array([case.global_batch * case.model.sequence / case.cluster.gpus for case in cases])
    return cases, tokens / np.array([float(row["tokens_per_s_per_gpu"]) for row in table])


def layer_seconds(case: tuple[Model, Policies, Cluster], constants: Constants) -> tuple[float, float]:
    """Seconds of one layer, forward and backward, tensor-parallel communication included."""
    model, policies, cluster = case
    layer = StepParts.of(policies, PolicySetting(model, cluster, 1, constants)).layer
    return float(layer.forward_total[0]), float(layer.backward_total[0])
