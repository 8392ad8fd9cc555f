"""Measured tables beside predictions, and the fits that leave one out."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pandas as pd

from commeff.cluster import Cluster
from commeff.experiments.planning.models import named
from commeff.experiments.studies.planner import published
from commeff.experiments.studies.planner.fit import TABLES, Measured, fit
from commeff.planner import MEASURED, Constants, Policy, predict
from commeff.planner.policies import RECOMPUTES

GIB = 2**30


def megatron() -> pd.DataFrame:
    """megatron2021.csv with the micro-batch and chunks that the rule chooses."""
    cases, tflops = published.megatron()
    records = []
    for row, case, measured in zip(published.table("megatron2021").itertuples(), cases, tflops, strict=True):
        seconds, best = published.megatron_best(case, MEASURED)
        estimate = case.price(MEASURED)
        rate = published.tflops(case, seconds)
        records.append(
            {
                "params_b": row.params_b,
                "gpus": row.gpus,
                "micro_batch": int(case.policies.micro_batch[best]),
                "chunks": int(case.policies.chunks[best]),
                "tflops_measured": measured,
                "tflops": rate,
                "error_pct": 100 * (rate / measured - 1),
                "memory_gib": float(estimate.memory_bytes[best]) / GIB,
                "bubble_pct": 100 * float(estimate.seconds["bubble"][best]) / seconds,
            }
        )
    return pd.DataFrame(records)


def korthikanti() -> pd.DataFrame:
    """korthikanti2022_layer.csv beside predictions."""
    cases, seconds = published.korthikanti()
    records: list[dict[str, float | str]] = []
    layers = published.layer_seconds(cases, MEASURED)
    experiments = published.table("korthikanti2022_layer").experiment
    for experiment, measured_seconds, predicted_seconds in zip(experiments, seconds, layers, strict=True):
        records.append({"experiment": experiment})
        for name, measured, predicted in (
            ("forward", measured_seconds[0], predicted_seconds[0]),
            ("backward", measured_seconds[1], predicted_seconds[1]),
            ("combined", measured_seconds.sum(), sum(predicted_seconds)),
        ):
            records[-1] |= {
                f"{name}_ms_measured": 1e3 * measured,
                f"{name}_ms": 1e3 * predicted,
                f"{name}_error_pct": 100 * (predicted / measured - 1),
            }
    return pd.DataFrame(records)


def vtrain() -> pd.DataFrame:
    """vtrain_single.csv, a column for each reading of what is recomputed."""
    table = published.table("vtrain_single", str)
    for reading in published.READINGS:
        cases, seconds = published.vtrain(reading)
        predictions = published.step_seconds(cases, MEASURED)
        table[f"ms_if_{reading}"] = (1e3 * predictions).round(3)
        table[f"error_pct_if_{reading}"] = (100 * (predictions / seconds - 1)).round(2)
    return table


def nemo() -> pd.DataFrame:
    """nemo_h100.csv with the recomputation that the rule chooses. "constant" takes the median FLOP/s of all other rows,
    as the table's authors count FLOPs: what a causal mask hides is counted too.
    """
    cases, seconds = published.nemo()
    models = [replace(case.model, flash_attention=False) for case in cases]
    flops = [case.global_batch * model.flops / case.cluster.gpus for case, model in zip(cases, models, strict=True)]
    rates = np.array(flops) / seconds
    records = []
    for place, (row, case) in enumerate(zip(published.rows("nemo_h100"), cases, strict=True)):
        priced = case.price(MEASURED)
        first = int(np.argmax(priced.memory_bytes <= case.cluster.gpu.memory_bytes))
        constant = flops[place] / np.median(np.delete(rates, place))
        splits = {name: row[name] for name in ("model", "sequence", "gpus", *published.SPLITS, "chunks")}
        records.append(
            {
                **splits,
                "recompute": RECOMPUTES[case.policies.recompute[first]],
                "seconds_measured": seconds[place],
                "seconds": float(priced.step_seconds[first]),
                "error_pct": 100 * (float(priced.step_seconds[first]) / seconds[place] - 1),
                "constant_error_pct": 100 * (constant / seconds[place] - 1),
                "memory_gib": float(priced.memory_bytes[first]) / GIB,
            }
        )
    return pd.DataFrame(records)


def fits(measured: Measured, evaluations: int) -> pd.DataFrame:
    """Errors with the constants that ship, with a fresh fit of all tables, and with each table left out of the fit."""
    chosen: dict[str, Constants] = {"shipped": MEASURED, "all tables": fit(measured, TABLES, evaluations)}
    for left_out in TABLES:
        rest = [table for table in TABLES if table != left_out]
        chosen[f"without {left_out}"] = fit(measured, rest, evaluations)
    return pd.DataFrame([{"fit": name, **measured.score(c), **asdict(c)} for name, c in chosen.items()])


def unseen(fits: pd.DataFrame) -> dict[str, Constants]:
    """The constants of each table that a row of `fits` has not seen."""
    rows = fits.set_index("fit")
    names = [*asdict(MEASURED)]
    return {table: Constants(*rows.loc[f"without {table}", names].astype(float)) for table in TABLES}


def llama2_70b() -> pd.DataFrame:
    """Lecture 004's example: LLaMA-2 70B on TP 16, PP 8, ZeRO-1 with DP 8, 1024 devices; global batch 4 M tokens.

    The lecture's devices are not described, so both A100 and H100 clusters are shown.
    """
    policy = Policy(tensor=16, pipeline=8, data=8, zero=1, sequence_parallel=True)
    records = []
    for name in ("a100_selene", "h100_400g"):
        p = predict(named("llama2-70b"), policy, Cluster.named(name, gpus=1024), global_batch=1024)
        parts = {f"{part}_s": value for part, value in p.breakdown["seconds"].items() if part != "offload"}
        head = {"cluster": name, "step_s": p.step_seconds, "mfu": p.mfu, "memory_gib": p.memory_bytes / GIB}
        records.append({**head, "fits": p.fits, **parts})
    return pd.DataFrame(records)
