"""The figure: modelled curves, which are dashed and have no markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from commeff.experiments.planning.scale.modelled import ScalingPoint
from commeff.experiments.report.data.names import NAMES, called
from commeff.experiments.report.draw.axes import logarithmic
from commeff.experiments.report.draw.figures import COLOURS, INK, QUIET, Figure, Look, Panel

IDEAL = Look(QUIET, (0, (1, 1.5)), "", 1.2)
BROKEN = ((0, (5, 2)), (0, (8, 2)), (0, (3, 1.5)), (0, (6, 1.5, 1.5, 1.5)))  # every one of them has gaps
Looks = Mapping[str, Look]
CAPTION = "Dashed: modelled. Dotted: ideal."
MARGINS = (0.72, 0.12, 0.45, 0.3)


def look(position: int) -> Look:
    """Dashed, no marker.

    >>> look(0).marker, look(0).dash
    ('', (0, (5, 2)))
    >>> len({(look(i).colour, look(i).dash) for i in range(31)})
    31
    """
    colours = (INK, *COLOURS)
    dash = BROKEN[(position + position // len(colours)) % len(BROKEN)]
    return Look(colours[position % len(colours)], dash, "", 1.6)


def figure(points: Sequence[ScalingPoint]) -> Figure:
    """The share of the ideal line under weak scaling, and the throughput under strong scaling, of each workload."""
    looks = {method: look(i) for i, method in enumerate(dict.fromkeys(point.method for point in points))}
    workloads = dict.fromkeys(point.workload for point in points)
    panels = []
    for scaling, paint in (("weak", draw_efficiency), ("strong", draw)):
        for workload in workloads:
            shown = [point for point in points if (point.workload, point.scaling) == (workload, scaling)]
            panels.append(Panel(f"{scaling}-{workload}", partial(paint, points=shown, looks=looks), 4.4, 3.0, MARGINS))
    legend = [*((title(method), style) for method, style in looks.items()), ("ideal", IDEAL)]
    data = pd.DataFrame([point.row() for point in points])
    return Figure("scale", "Throughput against workers", CAPTION, panels, len(workloads), data, legend)


def title(name: str) -> str:
    """What readers call a method or workload.

    >>> title("dsgd, one_peer_exponential"), title("bert_large"), title("local_sgd, period 4")
    ('gossip after the update', 'BERT-Large', 'local SGD, period 4')
    """
    return NAMES.get(name) or ", ".join(map(called, name.split(", ")))


def draw(axes: Axes, points: Sequence[ScalingPoint], looks: Looks) -> None:
    """Samples per second against workers, both logarithmic, with the ideal line."""
    first = points[0]
    numbers = sorted({point.workers for point in points})
    ideal = {point.workers: point.ideal for point in points}
    axes.plot(numbers, [ideal[n] for n in numbers], color=IDEAL.colour, linestyle=IDEAL.dash, linewidth=IDEAL.width)
    draw_methods(axes, points, [point.samples_per_second for point in points], looks)
    logarithmic(axes, "y")
    axes.set(ylabel=f"{first.unit} per second")
    axes.set_title(f"{title(first.workload)}, {first.scaling} scaling, modelled", color=INK)


def draw_efficiency(axes: Axes, points: Sequence[ScalingPoint], looks: Looks) -> None:
    """The share of the ideal throughput against workers, which tells curves apart that lie close together."""
    first = points[0]
    axes.axhline(100, color=IDEAL.colour, linestyle=IDEAL.dash, linewidth=IDEAL.width)
    draw_methods(axes, points, [100 * point.efficiency for point in points], looks)
    axes.set(ylim=(0, 105), ylabel="% of the ideal line")
    axes.set_title(f"{title(first.workload)}, {first.scaling} scaling, modelled", color=INK)


def draw_methods(axes: Axes, points: Sequence[ScalingPoint], values: Sequence[float], looks: Looks) -> None:
    """A curve for each method against the number of workers."""
    first, numbers = points[0], sorted({point.workers for point in points})
    for method in dict.fromkeys(point.method for point in points):
        pairs = [(point.workers, value) for point, value in zip(points, values, strict=True) if point.method == method]
        drawn = looks[method]
        axes.plot(*zip(*sorted(pairs), strict=True), color=drawn.colour, linestyle=drawn.dash, linewidth=drawn.width)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks(numbers))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    per_worker = first.gpus // first.workers
    axes.set(xlabel=f"workers of {per_worker} GPUs" if per_worker > 1 else "workers (GPUs)")


def ticks(numbers: Iterable[int]) -> list[int]:
    """At most six of the numbers of workers, evenly, with the largest.

    >>> ticks([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    [1, 4, 16, 64, 256, 1024]
    """
    every = sorted(numbers)
    stride = -(-len(every) // 6)
    return every[::-1][::stride][::-1]
