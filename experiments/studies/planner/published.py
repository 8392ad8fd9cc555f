"""Published measurements as planner inputs, with what their tables leave unsaid stated once for each table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.experiments.planning.models import named
from commeff.planner import Constants, Model, Policies, Policy, StepEstimate, estimate
from commeff.planner.estimate import StepParts
from commeff.planner.policies import RECOMPUTES, PolicySetting
from commeff.planner.refusals import feasible

TABLES = Path(__file__).parent / "tables"
MICRO_BATCHES = (1, 2, 4, 8, 16)  # what Megatron's authors may have tried
CHUNKS = tuple(range(1, 9))
SPLITS = ("tensor", "pipeline", "context")
READINGS = ("none", "full")  # what vtrain_single.csv may have recomputed

Row = dict[str, str]


def table(name: str, dtype: type[str] | None = None) -> pd.DataFrame:
    """tables/NAME.csv without its comments."""
    return pd.read_csv(TABLES / f"{name}.csv", comment="#", dtype=dtype, keep_default_na=False)


def rows(name: str) -> list[Row]:
    """The rows of a table, as printed.

    >>> rows("korthikanti2022_layer")[0]["forward_ms"]
    '7.7'
    """
    return list(table(name, str).to_dict("records"))


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


def step_seconds(cases: Sequence[Cases], constants: Constants) -> NDArray[np.float64]:
    """Predicted seconds of a step, in the order of the table."""
    predicted = np.empty(sum(len(case.places) for case in cases))
    for case in cases:
        predicted[case.places] = case.price(constants).step_seconds
    return predicted


def vtrain(recompute: str) -> tuple[list[Cases], NDArray[np.float64]]:
    """vtrain_single.csv: cases, and measured seconds of a step in the table's order.

    fp16 is an assumption of ours; a vocabulary of 50257 is the default of the authors' code. What was recomputed is
    open. Their configurations say use_checkpoint, so all; but with tensor=1 and hidden=2048 the step grows by 1.88 ms
    for each layer and sample, which with full recomputation would be 238 TFLOP/s, element-wise kernels included, where
    megatron2021.csv has 137 for a larger model. So the fit uses both readings, and the report shows both.
    """
    printed, cases = table("vtrain_single"), []
    policy = Policy(recompute=recompute, precision="fp16", overlap="none")
    for (hidden, layers, gpus), group in printed.groupby(["hidden", "layers", "gpus"], sort=False):
        policies = Policies.of(
            [
                replace(policy, tensor=row.tp, pipeline=row.pp, data=row.dp, micro_batch=row.micro_batch)
                for row in group.itertuples()
            ]
        )
        model = Model(layers=int(layers), hidden=int(hidden), heads=16, sequence=1024, vocab=50257)
        cluster = Cluster.named("a100_selene", gpus=int(gpus))
        cases.append(Cases(model, policies, cluster, group.batch.to_numpy(), [*group.index]))
    return cases, printed.iter_time_ms.to_numpy() / 1e3


def megatron() -> tuple[list[Cases], NDArray[np.float64]]:
    """megatron2021.csv: every micro-batch and number of chunks that may have been, and measured TFLOP/s of a GPU.

    One rule for what is not stated: the fastest that fits, as the authors say they tuned both.
    """
    printed, cases = table("megatron2021"), []
    for row in printed.itertuples():
        model = Model(row.layers, row.hidden, row.heads, row.seq, row.vocab)
        cluster = Cluster.named("a100_selene", gpus=row.gpus)
        policies = Policies.of(megatron_policies(row))
        possible = policies[feasible(model, policies, cluster, row.batch)]
        cases.append(Cases(model, possible, cluster, row.batch, [row.Index]))
    return cases, printed.tflops_per_gpu.to_numpy(float)


def megatron_policies(row: Any) -> list[Policy]:
    """What a row leaves open: micro-batch, and chunks where there is a pipeline."""
    policy = Policy(
        tensor=row.tp,
        pipeline=row.pp,
        data=row.data_parallel,
        schedule="interleaved" if row.pp > 1 else "1f1b",
        recompute="full",
        precision="fp16",
        overlap="none",
    )
    several = CHUNKS if row.pp > 1 else (1,)
    return [replace(policy, micro_batch=size, chunks=chunks) for size in MICRO_BATCHES for chunks in several]


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


def korthikanti() -> tuple[Cases, NDArray[np.float64]]:
    """korthikanti2022_layer.csv: one layer of the 22B model, and measured seconds forward and backward, (5, 2)."""
    printed, policy = table("korthikanti2022_layer"), Policy(tensor=8, micro_batch=4, precision="fp16")
    policies = [
        replace(policy, recompute=row.activation_recompute, sequence_parallel=row.sequence_parallel == "on")
        for row in printed.itertuples()
    ]
    model, cluster = Model(48, 6144, 64, 2048, 51200), Cluster.named("a100_selene", gpus=8)
    cases = Cases(model, Policies.of(policies), cluster, 1, [*printed.index])
    return cases, printed[["forward_ms", "backward_ms"]].to_numpy() / 1e3


def nemo() -> tuple[list[Cases], NDArray[np.float64]]:
    """nemo_h100.csv: what may have been recomputed, and measured seconds of a step.

    One rule for what is not stated: Megatron's distributed optimizer (zero=1), sequences split over tensor ranks, the
    default overlap, and the least recomputation that fits.
    """
    printed, cases = table("nemo_h100"), []
    for row in printed.itertuples():
        policy = Policy(
            tensor=row.tensor,
            pipeline=row.pipeline,
            context=row.context,
            data=row.gpus // (row.tensor * row.pipeline * row.context),
            micro_batch=row.micro_batch,
            chunks=row.chunks,
            schedule="interleaved" if row.chunks > 1 else "1f1b",
            zero=1,
            sequence_parallel=row.tensor > 1,
            precision="fp8",
        )
        policies = Policies.of([replace(policy, recompute=recompute) for recompute in RECOMPUTES])
        model, cluster = replace(named(row.model), sequence=row.sequence), Cluster.named("h100_400g", gpus=row.gpus)
        cases.append(Cases(model, policies, cluster, row.global_batch, [row.Index]))
    tokens = (printed.global_batch * printed.sequence / printed.gpus).to_numpy()
    return cases, tokens / printed.tokens_per_s_per_gpu.to_numpy(float)


def layer_seconds(cases: Cases, constants: Constants) -> NDArray[np.float64]:
    """Seconds of one layer, forward and backward, tensor-parallel communication included."""
    setting = PolicySetting(cases.model, cases.cluster, cases.global_batch, constants)
    layer = StepParts.of(cases.policies, setting).layer
    return np.stack(np.broadcast_arrays(layer.forward_total, layer.backward_total), axis=1)
