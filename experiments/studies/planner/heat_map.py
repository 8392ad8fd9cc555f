"""The study's heat map: which way of communicating is fastest, by model, GPUs and bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch, Rectangle

from commeff.experiments.report.data.names import readable
from commeff.experiments.report.draw.figures import COLOURS, INK, RULE

PAINTS = ("#eaeef2", *COLOURS, "#57606a")  # of the ways of convergence.yaml, in order


class StudyPanel(NamedTuple):
    """A grid of GPUs by bandwidth: places in `ways`, -1 where nothing fits, and gains over psgd."""

    title: str
    best: pd.DataFrame
    gains: pd.DataFrame


def heat_map(canvas: Canvas, rows: Sequence[Sequence[StudyPanel]], ways: Sequence[str]) -> None:
    """The study: for each scenario a row, for each model a panel, coloured by the fastest way."""
    grid = canvas.subplots(len(rows), len(rows[0]), squeeze=False)
    for line, panels in zip(grid, rows, strict=True):
        for axes, panel in zip(line, panels, strict=True):
            _cells(axes, panel)
    used = sorted({int(i) for panels in rows for panel in panels for i in np.ravel(panel.best) if i >= 0})
    handles = [Patch(facecolor=PAINTS[i], edgecolor=RULE, label=readable(ways[i])) for i in used]
    canvas.legend(handles=handles, loc="outside lower center", ncols=min(6, len(used)))


def _cells(axes: Axes, panel: StudyPanel) -> None:
    gpus, bandwidths = panel.best.index, panel.best.columns
    for y, x in np.ndindex(panel.best.shape):
        best, gain = int(panel.best.iat[y, x]), panel.gains.iat[y, x]
        colour = PAINTS[best] if best >= 0 else "white"
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white"))
        text = "–" if best < 0 else ("parallel SGD" if best == 0 else f"{gain:.2f}×")
        size = 7.5 if best else 5.5
        axes.text(x, y, text, ha="center", va="center", fontsize=size, color=INK if best <= 0 else "white")
    axes.set(xlim=(-0.5, len(bandwidths) - 0.5), ylim=(-0.5, len(gpus) - 0.5))
    axes.set_xticks(range(len(bandwidths)), [f"{x:g}" for x in bandwidths])
    axes.set_yticks(range(len(gpus)), [str(count) for count in gpus])
    axes.set(xlabel="NIC (Gb/s)", ylabel="GPUs", title=panel.title)
    axes.grid(False)
