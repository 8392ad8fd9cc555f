"""Figures of `commeff plan`: a pipeline's timeline, a bandwidth sweep, largest models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from commeff.experiments.planning.evidence import way_label
from commeff.experiments.planning.sweeps import BANDWIDTHS, Sweep
from commeff.experiments.report.draw.figures import COLOURS, INK, NO_DATE, STYLE
from commeff.planner import Timeline

KINDS = {"F": ("forward", COLOURS[0]), "B": ("backward", COLOURS[1]), "W": ("gradients of weights", COLOURS[2])}
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
