"""`python -m commeff.experiments.studies.choice`: results/converged/choice.md, whether the steps that methods need on
some tasks say which method to take on another.

Reads results/converged/steps.csv, where the table five_tasks is measured, and trains nothing. Each task in turn is left
out. `commeff gain` is told the steps that were measured on the others, and its choice for the task left out is paid for
with the steps measured there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from commeff.experiments.planning.evidence import Evidence
from commeff.experiments.planning.gain import Gain, conclusion, gains
from commeff.experiments.planning.question import read_question
from commeff.experiments.planning.worker_words import read_method
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.studies.step_ratios import FOLDER
from commeff.planner import WorkerMethod

COMMAND = "python -m commeff.experiments.studies.choice"
TABLE = "five_tasks"
JOB = ("model=tinyllama-1.1b", "cluster=a100_10g", "gpus=64", "precision=bf16")
NETWORKS = (1, 10, 25, 100)  # Gb/s of a node
PSGD = "parallel SGD"
METHODS = {
    "local SGD, H = 8": "method=local_sgd method.period=8",
    "DiLoCo, H = 30": "method=diloco method.period=30",
    "gossip, one-peer": "method=dsgd topology=one_peer_exponential",
    "MEM-SGD, 5 %": "method=mem_sgd compressor=top_k compressor.ratio=0.05",
    "QSGD, 4 bits": "method=compressed_sgd compressor=qsgd compressor.levels=7 "
    "compressor.bucket=512 compressor.norm=max",
}
PAGE = """# Does the evidence of four tasks choose the method of the fifth?

Written by `{command}` at commit {commit}. Steps are measured, seconds are modelled.

{question}.

The model, and so the seconds of a step, are the same for every task. Each method has its best policy, as
`commeff gain` finds it. `gain` takes a method that is faster than psgd even with the most steps that it needed on any
other task, and of several the one that is fastest then. If there is none, it stays with psgd.

*Regret* is the time to psgd's loss with the method taken, over the time with the best method in hindsight, less one.
It is the mean over the tasks; the worst task is in brackets. *Chance* takes each of the six methods equally often.

{regrets}

{sentence}

## Steps, in units of parallel SGD's

From [steps](steps.md), with 8 workers. DiLoCo's outer rate and momentum, 0.7 and 0.9, are not tuned. On digits
parallel SGD's loss falls early and then stays, so small differences are many steps.

{choice_steps}

## What `gain` takes, and what was best

{choices}
"""


def measured() -> pd.DataFrame:
    """Steps in units of parallel SGD's: a row for each task, a column for each method."""
    rows = pd.read_csv(FOLDER / "steps.csv").query("table == @TABLE")
    names = rows["variant"].str.removesuffix(", n = 8").str.rsplit(", ", n=1, expand=True)
    frame = rows.assign(method=names[0], task=names[1]).pivot(index="task", columns="method", values="steps")
    return frame[[*METHODS]].assign(**{PSGD: 1.0})


def with_steps(rows: Sequence[Gain], steps: pd.DataFrame) -> list[Gain]:
    """The gains, with the range of steps of some tasks as evidence."""
    psgd, *others = (replace(each, silence="") for each in rows)
    ranges = {name: (min(column), max(column)) for name, column in steps.items()}
    known = [
        replace(each, of=replace(each.of, range=ranges[each.name], kinds=("measured", "measured"))) for each in others
    ]
    return [psgd, *sorted(known, key=lambda gain: (gain.hours or (math.inf,))[-1])]


def recommended(rows: Sequence[Gain]) -> str:
    """The method that `commeff gain` says is faster than psgd on every reading, or psgd."""
    _, best = conclusion(rows, "")
    return best.name if best.verdict == "wins" else PSGD


def priced(network: int) -> list[Gain]:
    """psgd and the methods on a network, each with its best policy."""
    question = read_question([*JOB, f"bandwidth={network} Gb/s"])
    given = [Evidence(name, WorkerMethod(read_method(words.split()))) for name, words in METHODS.items()]
    return [each for each in gains(question, given) if not each.of.baseline]


def decisions(steps: pd.DataFrame, rows: Sequence[Gain], network: int) -> list[dict[str, Any]]:
    """One for each task that is left out: what is taken, and the regret of each rule."""
    allowed = {each.name: each.break_even for each in rows[1:]} | {PSGD: 1.0}
    lines = []
    for task in steps.index:
        hours = steps.loc[task] / pd.Series(allowed)  # in units of psgd's
        regret = hours / hours.min() - 1
        chosen = recommended(with_steps(rows, steps.drop(task)))
        lines.append(
            {
                "Gb/s": network,
                "task": task,
                "gain takes": chosen,
                "best": hours.idxmin(),
                "gain": regret[chosen],
                "always psgd": regret[PSGD],
                "always local SGD": regret["local SGD, H = 8"],
                "chance": regret.mean(),
            }
        )
    return lines


def main() -> None:
    """Write the page."""
    steps = measured()
    choices = pd.DataFrame([row for network in NETWORKS for row in decisions(steps, priced(network), network)])
    rules = [*choices.columns[4:]]
    groups = [(f"{network} Gb/s", rows[rules]) for network, rows in choices.groupby("Gb/s")]
    regrets = [
        {"network": name, **{rule: f"{rows[rule].mean():.3f} ({rows[rule].max():.2f})" for rule in rules}}
        for name, rows in [*groups, ("all", choices[rules])]
    ]
    means = choices[rules].mean()
    ahead = [rule for rule in rules[1:] if means["gain"] < means[rule]]
    behind = [rule for rule in rules[1:] if rule not in ahead]
    sentence = " ".join(
        f"`gain` is {word} than {', '.join(f'{rule} ({means[rule]:.3f})' for rule in others)}."
        for word, others in (("better", ahead), ("no better", behind))
        if others
    )
    tables = [
        Table.of(regrets, name="regrets"),
        Table.of(
            steps.reset_index().to_dict("records"), name="choice_steps", forms=dict.fromkeys(steps.columns, ".2f")
        ),
        Table.of(choices.to_dict("records"), name="choices", forms=dict.fromkeys(rules, ".2f")),
    ]
    question = f"`commeff gain {' '.join(JOB)}`, 8 nodes of 8 GPUs, with {', '.join(map(str, NETWORKS))} Gb/s of a node"
    Page("choice", PAGE, tables, words={"command": COMMAND, "sentence": sentence, "question": question}).write(FOLDER)


if __name__ == "__main__":
    main()
