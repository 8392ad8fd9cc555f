"""The lectures' tables, theirs beside ours, each as a data frame."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd

from commeff.experiments.studies.planner import simple
from commeff.experiments.studies.planner.partition import blocks, plans
from commeff.experiments.studies.planner.published import table
from commeff.planner import Model
from commeff.planner.passes import StageSeconds, bubble_seconds
from commeff.planner.policies import SCHEDULES
from commeff.planner.timeline import play

VOCAB = 50257  # of the GPT-3 family
UNITS = {"M": 1e6, "B": 1e9}


def bubble_share(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Bubble over ideal time on equal stages whose backward pass takes twice the forward pass, half of it for weights.

    Examples
    --------
    >>> [bubble_share(name, 4, 8) for name in ("gpipe", "1f1b", "zero_bubble", "naive")]
    [0.375, 0.375, 0.125, 3.0]
    >>> bubble_share("interleaved", 4, 8, chunks=3)
    0.125
    """
    kind, p, v, m = (np.array(x) for x in (SCHEDULES.index(schedule), stages, chunks, micro_batches))
    stage = StageSeconds(np.array(1.0), np.array(2.0), np.array(1.0))
    return float(bubble_seconds(kind, p, v, m, stage, StageSeconds(*(p * seconds for seconds in stage)))) / (
        3.0 * micro_batches
    )


def llama() -> pd.DataFrame:
    """12 l h^2 + 2 v h, and the matrices counted one by one (LLaMA's feed-forward, no biases)."""
    printed = table("llama_parameters")
    models = [
        Model(row.layers, row.hidden, row.hidden // 128, 2048, row.vocab, gated=True, tied_embeddings=False)
        for row in printed.itertuples()
    ]
    return pd.DataFrame(
        {
            "actual_b": printed.actual_b,
            "estimate_printed": printed.estimate,
            "estimate": simple.parameters(printed.layers, printed.hidden, printed.vocab),
            "counted": [model.parameters for model in models],
        }
    )


def gpt3() -> pd.DataFrame:
    """12 l h^2 + v h: tied embeddings."""
    models = table("gpt3_models")
    printed = models.params.str[:-1].astype(float) * models.params.str[-1].map(UNITS)
    counted = simple.parameters(models.layers, models.d_model, VOCAB, tied=True)
    error = 100 * (counted / printed - 1)
    return pd.DataFrame({"model": models.name, "printed": printed, "tied": counted, "error_pct": error})


def memory() -> pd.DataFrame:
    """The lectures' memory figures by their own accounting."""
    gpt = (96, 12288, 96, 2048)
    activations = 4 * simple.activation_numbers(*gpt)
    values = (
        simple.state_bytes(10e9, width=2) / 1e9,
        simple.state_bytes(7e9) / 1e9,
        4 * 175,
        4 * 175,
        8 * 175,
        activations / 1e9,
        128 * activations / (4 * 175e9),
        simple.traffic_numbers(1.0, 1024),
        simple.traffic_numbers(1.0, 1024, zero=3),
        4 * 4e6 * 4096 / 1e9,
    )
    printed = table("memory")
    return printed[["case", "unit"]].assign(printed=printed.value.astype(float), ours=values)


def utilisation() -> pd.DataFrame:
    """8 T P / (N F t) beside what is printed; 6 T P / (N F t) if nothing was recomputed (algorithms.md, erratum 12)."""
    printed = table("training_time")
    numbers = printed.tokens, printed.params, printed.gpus, 1e12 * printed.peak_tflops, 86400 * printed.days
    eight, six = (simple.utilisation(*numbers, recompute=recompute) for recompute in (True, False))
    return pd.DataFrame({"model": printed.model, "printed": printed.utilisation, "8TP": eight, "6TP": six})


def bubbles() -> pd.DataFrame:
    """Bubbles on equal stages: the event loop beside the formulas, forward 1, backward 2, half of it for weights."""
    records = []
    kinds = [(name, 1) for name in ("naive", "gpipe", "1f1b", "zero_bubble")] + [("interleaved", v) for v in (2, 4)]
    for (schedule, v), p, m in product(kinds, (2, 4, 8), (8, 16, 64)):
        pieces = p * v
        run = play(schedule, m, [1 / v] * pieces, [2 / v] * pieces, [1 / v] * pieces, v)
        looped = run.seconds / (3 * m) - 1
        records.append(
            {
                "schedule": schedule,
                "stages": p,
                "micro_batches": m,
                "chunks": v,
                "event_loop": looped,
                "formula": bubble_share(schedule, p, m, v),
                "lecture": simple.idle_share(p, m),
            }
        )
    return pd.DataFrame(records)


def partitions(hidden: int = 4096, devices: int = 8) -> pd.DataFrame:
    """Every choice of cuts for the lecture's chain, the feed-forward and the attention: numbers sent for one token."""
    lines = [
        (name, " ".join(plan.cuts), ", ".join(plan.forward), ", ".join(plan.backward), plan.numbers)
        for name, widths in blocks(hidden).items()
        for plan in plans(widths, devices)
    ]
    return pd.DataFrame(lines, columns=["chain", "cuts", "forward", "backward", "numbers"])
