"""Figures of the planner: a pipeline's timeline, a bandwidth sweep, largest models, the study's heat map."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import LogLocator

from commeff.experiments.published.planner.models import way_label
from commeff.experiments.published.planner.sweeps import BANDWIDTHS, Sweep
from commeff.experiments.report.draw.figures import COLOURS, INK, NO_DATE, RULE, STYLE
from commeff.planner import Timeline

KINDS = {"F": ("forward", COLOURS[0]), "B": ("backward", COLOURS[1]), "W": ("gradients of weights", COLOURS[2])}
PAINTS = ("#eaeef2", *COLOURS, "#57606a")  # of the ways of convergence.yaml, in order
FEW = 12  # micro-batches up to which blocks are numbered


def save(path: Path, size: tuple[float, float], draw: Callable[[Canvas], None]) -> None:
    """Draw into a file; its ending says what it is."""
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=size, layout="constrained")
        draw(canvas)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, dpi=160, metadata=NO_DATE if path.suffix == ".pdf" else None)


def timeline(canvas: Canvas, run: Timeline, title: str) -> None:
    """Every task a block, a row for each stage, idle time left white; later chunks of a stage paler."""
    axes = canvas.subplots()
    tasks = [event.task for stage in run.events for event in stage]
    many = max(task.micro_batch for task in tasks) >= FEW
    chunks = 1 + max(task.chunk for task in tasks)
    for stage, events in enumerate(run.events):
        for event in events:
            colour, pale = KINDS[event.task.what][1], 1 - 0.6 * event.task.chunk / chunks
            spot = [(event.start, event.end - event.start)]
            axes.broken_barh(spot, (stage - 0.42, 0.84), facecolor=colour, alpha=pale, edgecolor="white", linewidth=0.3)
            if not many:
                middle = (event.start + event.end) / 2
                label = str(event.task.micro_batch + 1)
                axes.text(middle, stage, label, ha="center", va="center", fontsize=6, color="white")
    axes.set(xlabel="seconds (modelled)", ylabel="stage", title=title, xlim=(0, run.seconds))
    axes.set_yticks(range(len(run.events)), [str(i + 1) for i in range(len(run.events))])
    axes.invert_yaxis()
    axes.grid(False)
    kinds = [kind for kind in KINDS if any(task.what == kind for task in tasks)]
    handles = [Patch(color=KINDS[kind][1], label=KINDS[kind][0]) for kind in kinds]
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(kinds))


def sweep(canvas: Canvas, sweeps: Sequence[Sweep], title: str) -> None:
    """Seconds against bandwidth, psgd in ink."""
    axes = canvas.subplots()
    for i, each in enumerate(sweeps):
        plain = each.way.method == "psgd"
        colour = INK if plain else COLOURS[(i - 1) % len(COLOURS)]
        dash = "-" if plain or i <= len(COLOURS) else "--"
        axes.plot(
            BANDWIDTHS, each.seconds, dash, color=colour, linewidth=2.2 if plain else 1.4, label=way_label(each.way)
        )
    axes.set(xscale="log", yscale="log", xlabel="NIC (Gb/s)", title=title)
    axes.set_ylabel("seconds for the work of a step of psgd (modelled)")
    axes.set_xticks(BANDWIDTHS, [f"{x:g}" for x in BANDWIDTHS], rotation=45)
    axes.xaxis.minorticks_off()
    _plain(axes)
    canvas.legend(loc="outside right center")


def largest(canvas: Canvas, rows: Sequence[dict[str, float]], title: str) -> None:
    """Bars for each ZeRO stage, groups for each number of data-parallel ranks; ticks: states alone."""
    axes = canvas.subplots()
    for zero in range(4):
        places = np.arange(len(rows)) + (zero - 1.5) * 0.2
        billions = np.array([row[f"zero={zero}"] for row in rows]) / 1e9
        alone = np.array([row[f"states zero={zero}"] for row in rows]) / 1e9
        axes.bar(places, billions, 0.19, color=COLOURS[zero], label=f"ZeRO-{zero}" if zero else "no ZeRO")
        axes.plot(places, alone, "_", color=INK, markersize=9, label="states alone" if zero == 3 else None)
    axes.set(yscale="log", ylabel="largest model (billion parameters)", xlabel="data-parallel ranks", title=title)
    axes.set_xticks(range(len(rows)), [f"{row['data']:g}" for row in rows])
    _plain(axes)
    canvas.legend(loc="outside right center")


def _plain(axes: Axes) -> None:
    """1, 2, 5, 10, 20 on a logarithmic axis, as digits."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.minorticks_off()


def heat_map(canvas: Canvas, rows: Sequence[Sequence[Mapping[str, Any]]], ways: Sequence[str]) -> None:
    """The study: for each scenario a row, for each model a grid of GPUs by bandwidth, coloured by the fastest way.

    A panel has title, gpus, bandwidths, best (rows of indices into `ways`, -1 where nothing fits) and gains over psgd.
    """
    grid = canvas.subplots(len(rows), len(rows[0]), squeeze=False)
    for line, panels in zip(grid, rows, strict=True):
        for axes, panel in zip(line, panels, strict=True):
            _cells(axes, panel)
    used = sorted({int(i) for panels in rows for panel in panels for i in np.ravel(panel["best"]) if i >= 0})
    handles = [Patch(facecolor=PAINTS[i], edgecolor=RULE, label=ways[i]) for i in used]
    canvas.legend(handles=handles, loc="outside lower center", ncols=min(6, len(used)))


def _cells(axes: Axes, panel: Mapping[str, Any]) -> None:
    gpus, bandwidths = panel["gpus"], panel["bandwidths"]
    for y, x in np.ndindex(len(gpus), len(bandwidths)):
        best, gain = int(panel["best"][y][x]), float(panel["gains"][y][x])
        colour = PAINTS[best] if best >= 0 else "white"
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white"))
        text = "–" if best < 0 else ("psgd" if best == 0 else f"{gain:.2f}×")
        axes.text(x, y, text, ha="center", va="center", fontsize=7.5, color=INK if best <= 0 else "white")
    axes.set(xlim=(-0.5, len(bandwidths) - 0.5), ylim=(-0.5, len(gpus) - 0.5))
    axes.set_xticks(range(len(bandwidths)), [f"{x:g}" for x in bandwidths])
    axes.set_yticks(range(len(gpus)), [str(count) for count in gpus])
    axes.set(xlabel="NIC (Gb/s)", ylabel="GPUs", title=panel["title"])
    axes.grid(False)
