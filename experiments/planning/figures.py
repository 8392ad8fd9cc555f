"""Figures of `commeff plan` and `commeff bandwidth`: a pipeline's timeline, sweeps of bandwidth, largest models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from commeff.experiments.planning.bandwidth import Pace
from commeff.experiments.planning.plan import GIB
from commeff.experiments.planning.sweeps import BANDWIDTHS, Sweep
from commeff.experiments.report.data.names import readable
from commeff.experiments.report.draw.axes import logarithmic
from commeff.experiments.report.draw.figures import COLOURS, INK, STYLE, print_to
from commeff.planner import Timeline

KINDS = {"F": ("forward", COLOURS[0]), "B": ("backward", COLOURS[1]), "W": ("gradients of weights", COLOURS[2])}
POINTS = 60  # of a curve
FEW = 12  # micro-batches up to which blocks are numbered


def save(path: Path, size: tuple[float, float], draw: Callable[[Canvas], None]) -> None:
    """Draw into a file; its ending says what it is."""
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=size, layout="constrained")
        draw(canvas)
        path.parent.mkdir(parents=True, exist_ok=True)
        print_to(canvas, path)


def timeline(canvas: Canvas, run: Timeline, title: str, none: Sequence[float], one: Sequence[float]) -> None:
    """Every task a block, a row for each stage, idle time left white; later chunks of a stage paler. Below it the
    memory of a rank of each stage.

    Parameters
    ----------
    none, one : bytes of each stage that keeps no micro-batch, and one.
    """
    axes, below = canvas.subplots(2, sharex=True, height_ratios=(1 + 0.28 * len(run.events), 2))
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
    axes.set(ylabel="stage", title=title, xlim=(0, run.seconds))
    below.set(xlabel="seconds (modelled)", ylabel="GiB of a rank")
    frees = "W" if any(task.what == "W" for task in tasks) else "B"
    tints = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(run.events)))
    for events, tint, empty, full in zip(run.events, tints, none, one, strict=True):
        kept = [(event.start, 1) for event in events if event.task.what == "F"]
        kept = sorted([(0.0, 0), *kept, *((event.end, -1) for event in events if event.task.what == frees)])
        times, changes = np.array(kept).T
        held = (empty + (full - empty) * changes.cumsum() / chunks) / GIB
        last = np.append(np.diff(times) > 0, True)  # of what happens at one time
        below.step([*times[last], run.seconds], [*held[last], held[-1]], where="post", color=tint, linewidth=1.2)
    axes.set_yticks(range(len(run.events)), [str(i + 1) for i in range(len(run.events))])
    for label, tint in zip(axes.get_yticklabels(), tints, strict=True):
        label.set_color(tint)
    axes.invert_yaxis()
    axes.grid(False)
    kinds = [kind for kind in KINDS if any(task.what == kind for task in tasks)]
    handles = [Patch(color=KINDS[kind][1], label=KINDS[kind][0]) for kind in kinds]
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(kinds))


def sweep(canvas: Canvas, sweeps: Sequence[Sweep], title: str) -> None:
    """Seconds against bandwidth, psgd in ink."""
    axes = canvas.subplots()
    for i, curve in enumerate(sweeps):
        plain = curve.way.method == "psgd"
        colour = INK if plain else COLOURS[(i - 1) % len(COLOURS)]
        dash = "-" if plain or i <= len(COLOURS) else "--"
        axes.plot(
            BANDWIDTHS,
            curve.seconds,
            dash,
            color=colour,
            linewidth=2.2 if plain else 1.4,
            label=readable(curve.way.name),
        )
    axes.set(xscale="log", yscale="log", xlabel="NIC (Gb/s)", title=title)
    axes.set_ylabel("seconds for the work of a step of psgd (modelled)")
    axes.set_xticks(BANDWIDTHS, [f"{x:g}" for x in BANDWIDTHS], rotation=45)
    axes.xaxis.minorticks_off()
    logarithmic(axes, "y")
    canvas.legend(loc="outside right center")


def utilisation(canvas: Canvas, paces: Mapping[str, Pace], title: str) -> None:
    """Computing time over all time against bandwidth, from where the first method reaches a fifth of it on."""
    axes = canvas.subplots()
    ends = [gigabits for pace in paces.values() for gigabits in pace.needed((0.2, 0.99)).values()]
    finite = [x for x in ends if 0 < x < float("inf")] or [1.0]
    bandwidths = np.geomspace(min(finite) / 2, 2 * max(finite), POINTS)
    for i, (name, pace) in enumerate(paces.items()):
        colour = INK if name == "psgd" else COLOURS[(i - 1) % len(COLOURS)]
        axes.plot(bandwidths, [pace.utilisation(x) for x in bandwidths], color=colour, label=readable(name))
    axes.set(xscale="log", ylim=(0, 1.02), xlabel="Gbit/s between workers", title=title)
    axes.set_ylabel("computing time / all time (modelled)")
    axes.xaxis.set_major_formatter("{x:g}")
    canvas.legend(loc="outside right center")


def largest(canvas: Canvas, rows: Sequence[dict[str, float]], title: str) -> None:
    """Bars for each ZeRO stage, groups for each number of data-parallel ranks; ticks: states alone."""
    axes = canvas.subplots()
    for zero in range(4):
        places = np.arange(len(rows)) + (zero - 1.5) * 0.2
        billions = np.array([row[f"zero={zero}"] for row in rows]) / 1e9
        state_sizes = np.array([row[f"states zero={zero}"] for row in rows]) / 1e9
        axes.bar(places, billions, 0.19, color=COLOURS[zero], label=f"ZeRO-{zero}" if zero else "no ZeRO")
        axes.plot(places, state_sizes, "_", color=INK, markersize=9, label="states alone" if zero == 3 else None)
    axes.set(yscale="log", ylabel="largest model (billion parameters)", xlabel="data-parallel ranks", title=title)
    axes.set_xticks(range(len(rows)), [f"{row['data']:g}" for row in rows])
    logarithmic(axes, "y")
    canvas.legend(loc="outside right center")
