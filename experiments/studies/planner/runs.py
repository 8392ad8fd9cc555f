"""Throughputs, days and costs of large runs that the lectures print: by arithmetic, and modelled."""

from __future__ import annotations

import pandas as pd

from commeff.cluster import Cluster
from commeff.experiments.planning.models import named
from commeff.planner import Plan, search

DAY = 86400
LLAMA_TOKENS, LLAMA_GPUS, LLAMA_BATCH, LLAMA_DAYS = 1.4e12, 2048, 2048, 21
LLAMA_RATE = 380  # tokens/s of a GPU, as its paper has it


def fastest(model: str, cluster: str, gpus: int, sequences: int) -> Plan:
    """The fastest policy that fits: it stands for that of a run, of so many sequences a step, which is not printed."""
    return search(named(model), Cluster.named(cluster, gpus=gpus), sequences, top=1)[0]


def runs() -> pd.DataFrame:
    """Each printed number, ours, and how ours comes about."""
    llama = fastest("llama-65b", "a100_selene", LLAMA_GPUS, LLAMA_BATCH)
    llama3 = fastest("llama3-405b", "h100_400g", 16384, 2048)
    megascale = fastest("gpt3-175b", "a100_selene", 12288, 6144)
    steps = LLAMA_TOKENS / (LLAMA_BATCH * named("llama-65b").sequence)
    hours = LLAMA_GPUS * LLAMA_DAYS * 24
    price = Cluster.named("a100_selene").gpu.hour_cost or 0.0
    flops = Cluster.named("h100_400g").gpu.peak_flops["bf16"] / 1e12
    modelled = "modelled, fastest policy of the search"
    rows = (
        ("LLaMA 65B, days on 2,048 A100", LLAMA_DAYS, LLAMA_TOKENS / (LLAMA_RATE * LLAMA_GPUS) / DAY,
         f"arithmetic: 1.4T tokens at {LLAMA_RATE} a second and GPU"),
        ("LLaMA 65B, days on 2,048 A100", LLAMA_DAYS, steps * llama.step_seconds / DAY, modelled),
        ("LLaMA 65B, million dollars", 5, hours * price / 1e6,
         f"arithmetic: {hours:,} GPU-hours of {price:.2f} dollars, the price in gpus.yaml"),
        ("Llama 3, TFLOP/s of a GPU on 16,384 H100, over", 400, llama3.prediction.mfu * flops,
         f"{modelled}; 405B is assumed"),
        ("MegaScale 175B, % MFU on 12,288 GPUs", 55.2, 100 * megascale.prediction.mfu,
         f"{modelled}; A100 and 6,144 sequences a step are assumed"),
    )  # fmt: skip
    frame = pd.DataFrame(rows, columns=["case", "printed", "ours", "how"])
    frame.insert(3, "error_pct", 100 * (frame.ours / frame.printed - 1))
    return frame
