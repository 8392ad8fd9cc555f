"""The headline study: which worker-axis method is fastest to a token budget, the rest of the policy chosen with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from commeff.cluster import Cluster
from commeff.experiments.planning.bandwidth import GIGABIT
from commeff.experiments.planning.evidence import Evidence, assumptions, said
from commeff.experiments.planning.figures import save
from commeff.experiments.planning.models import named
from commeff.experiments.planning.plan import policy_words
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.studies.planner.heat_map import StudyPanel, heat_map
from commeff.experiments.studies.planner.report import table
from commeff.planner import Model, WorkerMethod
from commeff.planner.search.everything import scan
from commeff.planner.search.space import Space

MODELS = {"1B": "tinyllama-1.1b", "7B": "llama2-7b", "70B": "llama2-70b"}
GPUS = (64, 128, 256, 512, 1024)
BANDWIDTHS = (1, 10, 25, 100, 400)  # Gb/s of one NIC, one for each node
NODE = "a100_selene"
BATCH_TOKENS = 1 << 22  # of one step of all workers
TOKENS_PER_PARAMETER = 20
SCENARIOS = {"assumed": "steps by papers", "measured": "steps as measured on small networks"}
PAGE = """# Which method is fastest to a token budget

![Fastest method](study.png)

Written by `python -m commeff.experiments.studies.planner study` at commit {commit}. Nothing here was measured but the
steps of the second row of the figure: seconds are modelled, by brute force over tensor, pipeline and data
parallelism, ZeRO, micro-batch, schedule, chunks, recomputation, sequence parallelism and the number of workers, for
every method apart; stages have equal layers.

- Models: {models}, trained for {ratio} tokens a
  parameter with psgd, {batch} tokens a step whatever the GPUs. Other methods need more tokens by the factors below.
- Cluster: nodes of eight A100-80GB (NVLink as in `{node}`), one NIC a node, full bisection.
- A worker is a set of ranks that holds one replica; how many there are is part of the search, so a "worker" of diloco
  may be a node, or half the cluster, and ZeRO shards within it. DiLoCo's factor by its authors' law grows with the
  number of workers; the others do not depend on it, which favours methods with many workers.
- Gradients travel as 32-bit numbers, as Megatron-LM reduces them; models that are mixed or averaged travel in the 16
  bits of their weights, which favours gossip and local steps by a factor of 2.
- Cells name the fastest method; the number is its gain over psgd, which is tuned by the same search in the same cell.

## What it says

{findings}

The first row puts a law beside assumptions: what DiLoCo loses to PowerSGD there rests on PowerSGD's 1.1, which nobody
has measured at these sizes and which depends neither on the model nor on the workers.

## Steps to the same loss, in units of psgd's (experiments/planning/convergence.yaml)

{steps}

"by papers" is by the law of DiLoCo's losses, and assumed of the others; the file says how far either holds. Numbers in
threes are those with 2, 4 and 8 workers, one set for each model on which they differ.

"measured" is the number of the variant in {measured_in}, of small networks trained to the end: language models of
at most 127,424 parameters, and networks for Fashion-MNIST and CIFAR-10. They are far from the study's models: the
pessimist's row. Methods that no run measured are left out of it.

## Hours to the budget, steps by papers: psgd, the fastest, and its policy

{table}
"""


def measured_steps(page: Path) -> dict[str, float]:
    """The column `steps` of results/converged/steps.csv by the variant."""
    frame = pd.read_csv(page)
    return dict(zip(frame.variant, frame.steps, strict=True))


def cells(models: Mapping[str, str], gpus: Sequence[int], bandwidths: Sequence[float]) -> Iterator[dict[str, Any]]:
    """For every model, number of GPUs, bandwidth and method, the fastest policy that fits."""
    for size, name in models.items():
        model = named(name)
        ways = [row.way for row in assumptions(model)]
        for count in gpus:
            for gigabits in bandwidths:
                cluster = replace(Cluster.named(NODE, count), nics=1).with_inter(bandwidth=gigabits * GIGABIT)
                for number, way in enumerate(ways):
                    plain = best(model, cluster, replace(way, steps=1.0))
                    by_papers = best(model, cluster, way) if callable(way.steps) else plain
                    steps = way.steps_of(by_papers["workers"])
                    yield {
                        "model": size,
                        "gpus": count,
                        "gigabits": gigabits,
                        "way": number,
                        **plain,
                        "seconds_by_papers": by_papers["step_seconds"] * (1.0 if callable(way.steps) else steps),
                        "steps_by_papers": steps,
                        "policy_by_papers": by_papers["policy"],
                    }


def best(model: Model, cluster: Cluster, way: WorkerMethod) -> dict[str, Any]:
    """Seconds of a step, times the steps that the way needs, and the policy; infinite if nothing fits."""
    batch = BATCH_TOKENS // model.sequence
    space = Space(model, cluster, batch, (way,))
    result = scan(space, 1)
    if not len(result.even):
        return {"step_seconds": float("inf"), "policy": "", "workers": 1, "priced": result.priced}
    policy = space.policy(result.even[0])
    return {
        "step_seconds": result.seconds,
        "policy": policy_words(policy),
        "workers": policy.workers,
        "priced": result.priced,
    }


def hours(frame: pd.DataFrame, steps: Mapping[int, float]) -> pd.DataFrame:
    """Hours to the budget: for every cell a row, for every way with known steps a column."""
    tokens = {size: TOKENS_PER_PARAMETER * named(name).parameters for size, name in MODELS.items()}
    known = frame[frame.way.isin(list(steps))]
    hours_needed = known.step_seconds * known.way.map(steps) * known.model.map(tokens) / BATCH_TOKENS / 3600
    keys = ["model", "gpus", "gigabits"]
    return known.assign(hours=hours_needed).pivot(index=keys, columns="way", values="hours")


def panels(table: pd.DataFrame, words: str) -> list[StudyPanel]:
    """The heat map's panels: the fastest way of every cell and its gain over psgd, which is way 0."""
    drawn = []
    for size in MODELS:
        grid = table.loc[size].sort_index()
        fastest = grid.idxmin(axis=1).where(np.isfinite(grid.min(axis=1)), -1)
        gains = grid[0] / grid.min(axis=1)
        drawn.append(StudyPanel(f"{size}, {words}", fastest.unstack(), gains.unstack()))
    return drawn


def write(out: Path, steps_page: Path) -> None:
    """Write study.csv with every method in every cell, study.md, and the heat map."""
    by_size = {size: assumptions(named(name)) for size, name in MODELS.items()}
    every = next(iter(by_size.values()))
    ways = [row.way.name for row in every]
    measured = measured_steps(steps_page)
    steps = {0: 1.0, **{i: measured[row.measured] for i, row in enumerate(every) if row.measured}}
    frame = pd.DataFrame(cells(MODELS, GPUS, BANDWIDTHS))
    weighed = frame.assign(step_seconds=frame.seconds_by_papers)
    tables = {"assumed": hours(weighed, dict.fromkeys(range(len(ways)), 1.0)), "measured": hours(frame, steps)}
    labelled = frame.assign(method=frame.way.map(dict(enumerate(ways))), steps_measured=frame.way.map(steps))
    words = {
        "models": ", ".join(f"{size} ({name})" for size, name in MODELS.items()),
        "ratio": TOKENS_PER_PARAMETER,
        "batch": f"{BATCH_TOKENS:,}",
        "node": NODE,
        "findings": "\n".join(findings(tables, ways)),
        "measured_in": steps_page,
    }
    cells_of = Table("study", "", [], data=labelled.drop(columns="way"))
    fastest = fastest_table(frame, tables["assumed"], ways)
    shown = [table(steps_table(by_size, steps), "steps"), table(fastest, "table")]
    Page("study", PAGE, [*shown, cells_of], words=words, digits=6).write(out)  # first: it says of which tree it is
    rows = [panels(tables[scenario], words) for scenario, words in SCENARIOS.items()]
    for ending in (".png", ".pdf"):
        path = (out / "study").with_suffix(ending)
        save(path, (11.0, 6.2), lambda canvas: heat_map(canvas, rows, ways))


def findings(tables: Mapping[str, pd.DataFrame], ways: Sequence[str]) -> list[str]:
    """What the tables say, in sentences made of their numbers."""
    lines = []
    for scenario, words in SCENARIOS.items():
        table = tables[scenario]
        gains = table[0] / table.min(axis=1)
        for size in MODELS:
            grid, gain = table.loc[size], gains.loc[size]
            beaten = sorted({float(gigabits) for _, gigabits in gain.index[gain > 1]})
            counts = grid.idxmin(axis=1).map(dict(enumerate(ways))).value_counts()
            where = f"at {', '.join(f'{x:g}' for x in beaten)} Gb/s" if beaten else "nowhere"
            most = "; ".join(f"{name} {count}" for name, count in counts.items())
            lines.append(
                f"- {words}, {size}: psgd is beaten {where}, by up to {gain.max():.2f} times. Cells won: {most}."
            )
    return lines


def steps_table(by_size: Mapping[str, Sequence[Evidence]], measured: Mapping[int, float]) -> pd.DataFrame:
    """A table of how many more steps each way needs; by papers, of each model where they differ."""
    return pd.DataFrame(
        {
            "method": same[0].way.name,
            "by papers": "; ".join(dict.fromkeys(said(row.way) for row in same)),
            "why": same[0].why,
            "measured": f"{measured[i]:.2f}" if i in measured else "–",
            "variant": same[0].measured or "–",
        }
        for i, same in enumerate(zip(*by_size.values(), strict=True))
    )


def fastest_table(frame: pd.DataFrame, table: pd.DataFrame, ways: Sequence[str]) -> pd.DataFrame:
    """A line for each cell."""
    policies = frame.set_index(["model", "gpus", "gigabits", "way"]).policy_by_papers
    lines = []
    for cell, row in table.iterrows():
        first = int(row.idxmin())
        lines.append(
            {
                "model": cell[0],
                "GPUs": cell[1],
                "Gb/s": cell[2],
                "psgd (h)": f"{row[0]:,.1f}",
                "fastest (h)": f"{row[first]:,.1f}",
                "method": ways[first],
                "policy": policies[(*cell, first)],
            }
        )
    return pd.DataFrame(lines)
