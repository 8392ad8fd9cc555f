"""results/planner: one CSV for every table, and a page that quotes them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.studies.planner import baselines, lectures, measured
from commeff.experiments.studies.planner.fit import PULL, Measured, apart, spread
from commeff.experiments.studies.planner.runs import runs

PAGE = """# The planner against published tables

Written by `python -m commeff.experiments.studies.planner tables` at commit {commit}; predictions are analytic, so no
hardware is named. Seven constants are shared by every row (`commeff/planner/constants.py`); four were fitted on the
three measured tables, all of them A100-80GB. Seconds here are modelled.

## Measured tables

Mean absolute error in percent of a table that the fit has not seen, beside baselines that know no physics. The last
column is what the constants that ship reach on the tables that they were fitted to.

{held_out}

{judged}

Of the tables left out, each of the same weight, nine of ten measured steps take {low:.2f} to {high:.2f} times the
seconds that are predicted. `commeff plan` prints this range with every step. Of pairs of their steps with one model,
batch and number of GPUs, nine of ten ratios of the slower over the faster are predicted at most {tie:.2f} times too
large. `commeff plan --search` calls plans that differ by less a tie.

A fit ends in the middle of its bounds where no table tells a constant: `PULL` adds {pull:g} for a constant at a bound.
Only vtrain_single.csv tells what issuing a kernel costs. Without it, the constant stays near the middle of 22 to
100 us. The lower bound is measured on this project's CPU; the upper one, and so the middle, is a judgement, made when
that table was known.

vtrain_single.csv does not say what was recomputed: its authors' configurations say `use_checkpoint`, its growth with
the micro-batch does not look like it (see `experiments/studies/planner/published.py`), so both readings are fitted
and shown.
Megatron's and vTrain's frameworks reduced gradients after the backward pass, so nothing is hidden in these two tables;
korthikanti2022_layer.csv hides tensor-parallel messages behind gradients of weights.
The unstated micro-batch (1 to 16) and chunks (1 to 8) of megatron2021.csv follow one rule: the fastest that fits.
Baselines are held out a row at a time, the regression of vtrain_single.csv a fifth of the rows at a time:

{baselines}

### Leave one table out

The same fit on the other tables, scored on all.

{fits}

### megatron2021.csv

{megatron}

### korthikanti2022_layer.csv, one layer, milliseconds

{korthikanti}

### vtrain_single.csv, mean error (%) by shape

{vtrain}

### nemo_h100.csv: LLaMA in fp8, and long sequences split over context ranks

No constant was fitted to this table. One formula was changed after it had been compared, that of what hides behind
attention, for another reason; no figure of this paragraph moved. The table says neither what was recomputed nor how
states were shared: see `published.nemo` for the rule. The planner is {nemo:.1f} % off in the mean, and
{nemo_long:+.1f} % with its sign on sequences of 32,768 tokens and more. The median FLOP/s of the other rows, counted
as the table's authors do, is {nemo_constant:.1f} % off.

{nemo_h100}

## Lecture tables

### LLaMA parameters

{llama}

### GPT-3 sizes, 12 l h^2 + v h

{gpt3}

### Memory, each by its lecture's own accounting

{memory}

### Utilisation (erratum 12: the printed 0.3 does not follow)

{utilisation}

### Large runs: days, cost and throughput

{runs}

380 tokens/s are in LLaMA's paper, 55.2 % in MegaScale's abstract; the lecture prints neither. It prints no policy of
any of them. ZeRO's throughput is in the lectures as pictures without numbers, so there is no row for it.

### Bubbles over ideal time, event loop and formula; "lecture" is (N-1)/m

Largest difference of event loop and formula over {bubble_rows} cases: {bubble_gap:.1e}.

{bubbles}

### Tensor partitions, hidden 4096, 8 devices: numbers sent by each for one token, both ways

{partitions}

### LLaMA-2 70B, TP 16, PP 8, ZeRO-1, DP 8 (lecture 004; not measured there)

{llama2_70b}
"""


def write(out: Path, evaluations: int) -> None:
    """Write every table, and report.md, into `out`."""
    tables = Measured()
    frames = {
        "llama": lectures.llama(),
        "gpt3": lectures.gpt3(),
        "memory": lectures.memory(),
        "utilisation": lectures.utilisation(),
        "runs": runs(),
        "bubbles": lectures.bubbles(),
        "partitions": lectures.partitions(),
        "megatron": measured.megatron(),
        "korthikanti": measured.korthikanti(),
        "vtrain": measured.vtrain(),
        "nemo_h100": measured.nemo(),
        "baselines": baselines.baselines(),
        "fits": measured.fits(tables, evaluations),
        "llama2_70b": measured.llama2_70b(),
    }
    frames["held_out"] = baselines.held_out(frames["fits"], frames["baselines"])
    bubbles, nemo = frames["bubbles"], frames["nemo_h100"]
    some = bubbles[(bubbles.stages == 4) & (bubbles.micro_batches == 8)]
    shown = {**frames, "bubbles": some, "vtrain": by_shape(frames["vtrain"])}
    unseen = measured.unseen(frames["fits"])
    words = {
        "judged": judged(frames["held_out"]),
        **dict(zip(("low", "high"), spread(tables, unseen), strict=True)),
        "tie": apart(tables, unseen),
        "nemo": nemo.error_pct.abs().mean(),
        "nemo_long": nemo.error_pct[nemo.sequence.astype(int) >= 32768].mean(),
        "nemo_constant": nemo.constant_error_pct.abs().mean(),
        "pull": PULL,
        "bubble_rows": len(bubbles),
        "bubble_gap": (bubbles.event_loop - bubbles.formula).abs().max(),
    }
    pages = [table(shown[name], name, data=frame) for name, frame in frames.items()]
    Page("report", PAGE, pages, words=words, digits=6).write(out)


def judged(held_out: pd.DataFrame) -> str:
    """Where the planner, held out, is worse than a baseline."""
    names = [name for name in held_out if name.endswith(", held out")]
    worse = [
        f"{row.table}{f' ({row.reading})' if row.reading else ''} than "
        + " and ".join(f"the {n.split(',')[0]}" for n in beaten)
        for _, row in held_out.iterrows()
        if (beaten := [name for name in names if row[name] != "" and row[name] < row["held out"]])
    ]
    return f"Held out, the planner is worse on {'; on '.join(worse)}." if worse else "Held out, no baseline is nearer."


def by_shape(vtrain: pd.DataFrame) -> pd.DataFrame:
    """Mean signed errors by hidden size, tensor ranks and micro-batch."""
    columns = [name for name in vtrain if name.startswith("error_pct")]
    return vtrain.groupby(["hidden", "tp", "micro_batch"])[columns].mean().reset_index()


def table(frame: pd.DataFrame, name: str, data: pd.DataFrame | None = None) -> Table:
    """A table with four digits of each fraction; `data` are for its file, if it is to have one."""
    return Table.of(frame.to_dict("records"), digits=4, name=name, data=pd.DataFrame() if data is None else data)
