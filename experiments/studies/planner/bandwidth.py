"""Bandwidth against utilisation: two published tables beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from commeff.experiments.planning.bandwidth import Pace
from commeff.experiments.planning.figures import save, utilisation
from commeff.experiments.planning.scale.job import Job
from commeff.experiments.report.draw.figures import COLOURS, INK
from commeff.experiments.report.write.page import Page
from commeff.experiments.studies.planner.published import Row, rows
from commeff.experiments.studies.planner.report import table

GRID = 10 ** (-1 + 4 * np.arange(50) / 49)  # Gbit/s
LAYERS = {"Chinchilla": 48, "Llama3": 126, "DeepSeek-V3": 61}
FRAGMENT = 3  # layers
FIRST = {"scaling laws": "Chinchilla 10B", "Streaming DiLoCo": "1B"}  # what may choose a reading
SHOWN = "10B"  # of Streaming DiLoCo's, drawn
LONG = {"streaming": "streaming DiLoCo", "overlapped": "streaming, overlapped", "fp4": "streaming, overlapped, 4 bits"}
PAGE = """# The bandwidth that methods need, beside two published tables

![Computing time against bandwidth](bandwidth.png)

Written by `python -m commeff.experiments.studies.planner bandwidth` at commit {commit}. Both sides are modelled, theirs
by a simulator of Google DeepMind's, and no hardware is named. Ours is `commeff bandwidth --layerwise`, which prices
what `commeff.profile` says of each method; [bandwidth.csv](bandwidth.csv) has every cell. The figure shows the 10B
model of Streaming DiLoCo's table: open markers are printed, lines are ours.

- scaling laws: [arXiv 2503.09799](https://arxiv.org/abs/2503.09799), its simulated compute utilization, 90 cells.
- Streaming DiLoCo: [arXiv 2501.18512](https://arxiv.org/abs/2501.18512), Table 4, 75 cells, H = 100.

## What it says

{findings}

All printed cells lie on a grid of 50 bandwidths from 0.1 to 1,000 Gbit/s, a factor of 1.207 apart. A difference is
counted in steps of that grid; "1000.0+" is met by 1,000 or more.

{models}

By method:

{methods}

## What was assumed

No constant is fitted, and one reading is chosen.

- Utilisation is computing time over all time. There are two workers, 16 bits a number, and no latency. A ring
  all-reduce of two workers moves 2 (n - 1) / n = 1 times the model, so all 16 bits of every parameter travel.
- Two thirds of computing is the backward pass. A gradient leaves when its layer has it, an outer gradient too, and the
  next step waits until all have arrived. Streaming DiLoCo's table prints the layers (24, 48, 108); the others are those
  of the models' own papers (48, 126, 61).
- Each fragment is of three layers and is exchanged once in H steps, the fragments evenly apart. Overlapped ones are due
  a step later. FP4 is our `Int4`, which sends 4.5 bits a number with its scales.
- The reading: what is printed is the last bandwidth of the grid *below* the one that is needed, not the first above it.
  The first model's rows of each table choose it. The other reading meets the same cells if 13.3 bits of the 16 travel,
  which no text says.

{readings}

## What is left

- At H = 50 and 100 the scaling laws' table needs about a tenth to a quarter less than at H = 1, relative to ours. A run
  that ends before its last average does not explain it: it would leave out a larger share at H = 300, where the
  difference is smaller. Step times are printed to one or two digits.
- In their simulator the next forward pass goes on until it reaches a layer that is under way, and the layers of a
  fragment lie apart. In ours a fragment leaves evenly over the backward pass. It shows at 99 % without overlap.
"""


def method(row: Row) -> tuple[str, ...]:
    """The words of a row's method.

    >>> method({"method": "fp4", "period": "100", "layers": "48"})[-2:]
    ('method.exchange.delay=1', 'method.exchange.bits=4')
    """
    name, period = row["method"], f"method.period={row['period']}"
    if name == "psgd":
        return ("method=psgd",)
    if name == "diloco":
        return ("method=diloco", period)
    late = "method.exchange.delay=1"
    more = {"streaming": (), "overlapped": (late,), "fp4": (late, "method.exchange.bits=4")}[name]
    return ("method=streaming_diloco", period, f"method.fragments={int(row['layers']) // FRAGMENT}", *more)


def read() -> list[Row]:
    """The rows of both tables, each with its paper, the name of its model and its layers."""
    laws = [
        row | {"paper": "scaling laws", "layers": str(LAYERS[row["architecture"]])} for row in rows("diloco_bandwidth")
    ]
    streaming = [row | {"paper": "Streaming DiLoCo"} for row in rows("streaming_diloco_bandwidth")]
    for row in (*laws, *streaming):
        row["model"] = f"{row.get('architecture', '')} {row['params_b']}B".strip()
    return laws + streaming


def pace(row: Row) -> Pace:
    """The pace of a row's model by its method."""
    parameters = round(float(row["params_b"]) * 1e9)
    return Job(parameters, int(row["layers"]), float(row["step_seconds"]), layerwise=True).pace(method(row))


def place(gigabits: float, above: bool = False) -> int:
    """Where on the grid a bandwidth is printed: at the last below it, or the first above.

    >>> [place(needed, above) for needed in (110.0, 5000.0) for above in (False, True)]
    [37, 38, 49, 49]
    """
    position = int(np.searchsorted(GRID, gigabits, "left" if above else "right")) - (not above)
    return min(max(position, 0), len(GRID) - 1)


def printed(text: str) -> int:
    """The place of a printed number, which is rounded."""
    return int(np.abs(np.log(GRID / float(text.rstrip("+")))).argmin())


def compare(table: list[Row]) -> tuple[pd.DataFrame, dict[str, Pace]]:
    """Every cell, theirs and ours, in both readings; and what the figure draws."""
    cells, drawn = [], {}
    needed: dict[tuple[str, ...], dict[float, float]] = {}
    for row in table:
        words = method(row)
        key = (row["paper"], row["model"], *words)
        if key not in needed:
            speed = pace(row)
            needed[key] = speed.needed()
            if row["paper"] == "Streaming DiLoCo" and row["model"] == SHOWN:
                drawn[row["method"]] = speed
        share = int(row["utilisation_pct"]) / 100
        gigabits, position = needed[key][share], printed(row["gbit_per_s"])
        cells.append(
            {
                **{name: row[name] for name in ("paper", "model", "method", "period")},
                "utilisation": share,
                "printed": row["gbit_per_s"],
                "gbit_per_s": gigabits,
                "steps": place(gigabits) - position,
                "steps_if_above": place(gigabits, above=True) - position,
            }
        )
    return pd.DataFrame(cells), drawn


def summary(cells: pd.DataFrame, by: list[str], steps: str = "steps") -> pd.DataFrame:
    """Cells met, by what is named."""
    distance = cells[steps].abs()
    marked = cells.assign(cells=1, same=distance == 0, within_a_step=distance <= 1, farthest=distance)
    rules = {"cells": "sum", "same": "sum", "within_a_step": "sum", "farthest": "max"}
    return marked.groupby(by, sort=False).agg(rules).reset_index()


def readings(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells met by either reading of what is printed, of the first models and of the others."""
    first = cells.model == cells.paper.map(FIRST)
    frames = []
    for words, steps in (("last below", "steps"), ("first above", "steps_if_above")):
        whole = cells.assign(models=np.where(first, "first", "others"), printed_is=words)
        frames.append(summary(whole, ["printed_is", "paper", "models"], steps))
    return pd.concat(frames)


def findings(cells: pd.DataFrame) -> str:
    """The page's sentences."""
    lines = []
    for paper, group in [*cells.groupby("paper", sort=False), ("both", cells)]:
        distance = group.steps.abs()
        lines.append(
            f"- {paper}: {(distance <= 1).sum()} of {len(group)} cells are met within one step of the grid, "
            f"{(distance == 0).sum()} exactly; the farthest is {distance.max()} steps off."
        )
    far = cells[cells.steps.abs() > 1]
    named = [f"{row.paper}, {row.model}, {row.method}, {row.utilisation:.0%}" for row in far.itertuples()]
    return "\n".join([*lines, f"- Farther than a step: {'; '.join(named) or 'none'}."])


def write(out: Path) -> None:
    """Write bandwidth.md, .csv and .png."""
    cells, drawn = compare(read())
    quoted = {
        "models": summary(cells, ["paper", "model"]),
        "methods": summary(cells, ["paper", "method", "period"]),
        "readings": readings(cells),
    }
    tables = [table(frame, name) for name, frame in quoted.items()]
    Page(
        "bandwidth",
        PAGE,
        [*tables, table(cells, "bandwidth", data=cells)],
        words={"findings": findings(cells)},
        digits=6,
    ).write(out)
    save(out / "bandwidth.png", (8.0, 3.6), lambda canvas: _draw(canvas, drawn, cells))


def _draw(canvas: Any, drawn: Mapping[str, Pace], cells: pd.DataFrame) -> None:
    utilisation(
        canvas,
        {LONG.get(name, name): pace for name, pace in drawn.items()},
        "10 billion parameters, 0.8 s of computing a step, two workers, H = 100",
    )
    shown = cells[(cells.paper == "Streaming DiLoCo") & (cells.model == SHOWN)]
    for i, name in enumerate(drawn):
        dots = shown[shown.method == name]
        colour = INK if name == "psgd" else COLOURS[(i - 1) % len(COLOURS)]
        canvas.axes[0].plot(
            dots.printed.astype(float), dots.utilisation, "o", color=colour, mfc="white", markersize=4.5
        )
