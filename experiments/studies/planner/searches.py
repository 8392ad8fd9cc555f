"""The search methods against each other at equal budgets, and how fast brute force is: results/planner/search.*"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from commeff.cluster import Cluster
from commeff.experiments.planning.evidence import assumptions
from commeff.experiments.planning.models import named
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.studies.planner.joint import Joint
from commeff.experiments.studies.planner.report import table
from commeff.planner.search.api import GUIDED
from commeff.planner.search.everything import scan
from commeff.planner.search.guided import EvenPolicies, Problem, drive
from commeff.planner.search.space import Space
from commeff.planner.worker_method import WorkerMethod

MODEL, CLUSTER, GLOBAL_BATCH = "gpt3-175b", ("a100_selene", 1024), 1536
CLOSE = 2.0  # per cent
PAGE = """# Search methods at equal budgets

Written by `python -m commeff.experiments.studies.planner search` at commit {commit} on {cpu}, one thread. Step
times that are searched are modelled; seconds of the search itself are measured, CPU time.

An evaluation is one possible policy priced for the first time; whether a policy is possible costs nothing, for
every method. Gaps are to the best known step time, in per cent. "beats random" counts the seeds whose best is
better than random search's with the same seed; equal counts half. The reward, the restarts, the rate and the floor
of `reinforce` were chosen while looking at both spaces, mostly on other seeds; the other methods are as first
written.

## A space that can be enumerated

{model}, {gpus} GPUs of {cluster}, global batch {batch}: {count:,} policies, so {largest} evaluations are {share:.1f} %.
The best is known: brute force priced all.

{even}

## A space too big to enumerate

{joint_model}: seven axes of the policy of a pipeline, and a weight for the layers of each of
up to 16 stages, priced as the event loop would: {joint_count:.1e} policies. "Best known" is dynamic programming on the
most promising pipelines; it is exact for a formula, not for the event loop, so negative gaps are possible.

{joint}

## Brute force

| space | policies | possible or not | CPU seconds | policies/s | CPU seconds again | policies/s again |
|---|---|---|---|---|---|---|
{speed}

Policies are priced including the mask that says which are possible; "possible or not" counts what the mask looked at.
The first search of a process also composes every method from its words and plays it among every number of workers; a
search again, as on another cluster, prices what was played.
"""


@dataclass(frozen=True)
class Contest:
    """A problem on which methods meet.

    Parameters
    ----------
    name : of the space.
    best : the logarithm of the best known value.
    budgets : evaluations after which gaps are read; the last is spent.
    """

    name: str
    problem: Problem
    best: float
    budgets: tuple[int, ...]

    def run(self, seeds: int) -> pd.DataFrame:
        """A row for each method and seed."""
        records = []
        for method, searcher in GUIDED.items():
            for seed in range(seeds):
                random = np.random.default_rng(seed)
                start = time.process_time()
                trace = drive(searcher(self.problem, random), self.problem, self.budgets[-1], random)
                seconds = time.process_time() - start
                gaps = {f"gap_{n}": 100 * float(np.expm1(trace.best[n - 1] - self.best)) for n in self.budgets}
                records.append({"space": self.name, "method": method, "seed": seed, "cpu_seconds": seconds, **gaps})
        return pd.DataFrame(records)


def summary(runs: pd.DataFrame, budgets: tuple[int, ...]) -> pd.DataFrame:
    """A row for each method and budget."""
    records = []
    for method in GUIDED:
        searched = runs[runs.method == method].set_index("seed")
        floor = runs[runs.method == "random"].set_index("seed")
        for n in budgets:
            gaps, others = searched[f"gap_{n}"], floor[f"gap_{n}"]
            wins = float((gaps < others - 1e-9).sum() + ((gaps - others).abs() <= 1e-9).sum() / 2)
            records.append(
                {
                    "method": method,
                    "evaluations": n,
                    "median_gap_pct": round(float(gaps.median()), 3),
                    "mean_gap_pct": round(float(gaps.mean()), 3),
                    "worst_gap_pct": round(float(gaps.max()), 3),
                    f"within_{CLOSE:g}_pct": f"{int((gaps <= CLOSE).sum())} of {len(gaps)}",
                    "beats_random": "" if method == "random" else f"{wins:g} of {len(gaps)}",
                    "cpu_s": round(float(searched.cpu_seconds.mean()), 2),
                }
            )
    return pd.DataFrame(records)


def speed() -> tuple[str, int]:
    """Rows on brute force, and the policies of the first space."""
    lines, counts = [], []
    scan(Space(named(MODEL), Cluster.named(*CLUSTER), GLOBAL_BATCH), 1, budget=1)  # imports what is imported late
    for label, ways in (
        ("all but the worker axis", (WorkerMethod(),)),
        ("all", tuple(row.way for row in assumptions(named(MODEL)))),
    ):
        space = Space(named(MODEL), Cluster.named(*CLUSTER), GLOBAL_BATCH, ways)
        figures = []
        for _ in ("first", "again"):
            start = time.process_time()
            priced = scan(space, 1).priced
            seconds = time.process_time() - start
            figures += [f"{seconds:.2f}", f"{priced / seconds:,.0f}"]
        policies = int(np.prod(space.sizes, dtype=float))
        lines.append(f"| {label} | {priced:,} | {policies:,} | {' | '.join(figures)} |")
        counts.append(sum(len(rows) for rows in space.blocks()))
    return "\n".join(lines), counts[0]


def write(out: Path, seeds: int) -> None:
    """Write search.csv with every run, and search.md with what they say."""
    space = Space(named(MODEL), Cluster.named(*CLUSTER), GLOBAL_BATCH)
    even, joint = EvenPolicies(space), Joint()
    best = min(float(even.price(rows).min()) for rows in space.blocks())
    contests = (
        Contest("even", even, best, (300, 1000, 6000)),
        Contest("joint", joint, joint.best_known(), (100, 200, 400)),
    )
    frames = [contest.run(seeds) for contest in contests]
    lines, count = speed()
    tables = [table(summary(frame, one.budgets), one.name) for frame, one in zip(frames, contests, strict=True)]
    runs = Table("search", "", [], data=pd.concat(frames))
    largest, model = contests[0].budgets[-1], joint.space.model
    words = {
        "model": MODEL,
        "gpus": CLUSTER[1],
        "cluster": CLUSTER[0],
        "batch": GLOBAL_BATCH,
        "count": count,
        "largest": largest,
        "share": 100 * largest / count,
        "joint_count": joint.count,
        "joint_model": f"{model.layers} layers of {model.hidden} on {joint.space.cluster.gpus} GPUs",
        "speed": lines,
    }
    Page("search", PAGE, [*tables, runs], words=words, digits=5).write(out)
