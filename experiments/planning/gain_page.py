"""The answer of `commeff gain` as files: gain.csv, gain.md, and the figure of the ranges beside the break-evens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from commeff.experiments.planning.gain import Gain, table_rows
from commeff.experiments.report.draw.figures import COLOURS, INK, QUIET, Figure, Look, Panel
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table

PAINTS = {"wins": COLOURS[2], "depends": COLOURS[4], "loses": COLOURS[1], "unknown": QUIET}
CAPTION = "Bars: how many times psgd's steps a method needs, by its sources. Ticks: up to how many it wins, modelled."
TEXT = """# What each method would gain over psgd

{sentence}

![Steps needed and steps allowed](gain.png)

{question}. Seconds and break-evens are modelled; nothing was measured here. Hours are to psgd's loss after
{tokens:.3g} tokens. "exposed" is communication that computing does not hide, "memory" what the fullest GPU holds, of
psgd, and what it holds more, of the others, "wins up to" the steps in units of psgd's, or tokens where the batch
differs, "lines" what changes in a script.
Coding is encoding and decoding: bytes moved over half of the memory's bandwidth where nobody has measured the GPU.

{table}

## Sources of the steps

{sources}

## Best policies

{policies}

## What changes in a training script

{changes}

Made by `{command}` at commit {commit}.
"""


def save(rows: Sequence[Gain], out: Path, words: dict[str, object]) -> list[Path]:
    """Write all files.

    Parameters
    ----------
    rows : of the table, psgd the first.
    out : the folder.
    words : sentence, question, tokens and command of the page.
    """
    table = Table.of(table_rows(rows))
    quoted = Table("table", table.title, table.columns)
    others = [gain for gain in rows[1:] if gain.plan]
    lists = {
        "sources": [f"- {gain.name}: {gain.silence or gain.of.why}" for gain in rows[1:]],
        "policies": [
            f"- {gain.name}: `{gain.row()['policy']}`" + (f", coding {gain.coding}" if gain.coding else "")
            for gain in (rows[0], *others)
        ],
        "changes": [line for gain in others if gain.changes for line in _diff(gain)],
    }
    text = {name: "\n".join(lines) for name, lines in lists.items()}
    return Page("gain", TEXT, [quoted], [figure(rows)], words=words | text).write(out)


def _diff(gain: Gain) -> list[str]:
    return [f"{gain.name}:", "", "```diff", *gain.changes, "```", ""]


def figure(rows: Sequence[Gain]) -> Figure:
    """A line for each method: the range of its steps, and the break-even; it wins if the bar ends before the tick."""
    shown = [gain for gain in rows[1:] if gain.plan]
    legend = [
        *((verdict, Look(paint, "-", "", 4)) for verdict, paint in PAINTS.items()),
        ("wins up to", Look(INK, "", "|")),
    ]
    data = pd.DataFrame([gain.row() for gain in rows])
    panel = Panel("steps", lambda axes: draw(axes, shown), 6.8, 0.75 + 0.26 * len(shown), (2.85, 0.15, 0.45, 0.1))
    return Figure("gain", "Steps needed and steps allowed", CAPTION, [panel], 1, data, legend)


def draw(axes: Axes, rows: Sequence[Gain]) -> None:
    """Bars and ticks, the first method on top."""
    for place, gain in enumerate(rows):
        paint = PAINTS[gain.verdict]
        if gain.of.range and not gain.silence:
            axes.plot(gain.of.range, [place, place], color=paint, linewidth=4, solid_capstyle="butt", marker="|")
        axes.plot([gain.break_even], [place], color=INK, marker="|", markersize=12, markeredgewidth=1.6)
    axes.axvline(1, color=QUIET, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(rows)), [gain.name for gain in rows])
    axes.set(ylim=(len(rows) - 0.5, -0.5), xscale="log", xlabel="times psgd's steps to the same loss")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
