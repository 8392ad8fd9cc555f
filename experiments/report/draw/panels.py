"""The drawing on one pair of axes, and how its scales are chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from commeff.experiments.report.data.names import called
from commeff.experiments.report.data.quantities import quantity
from commeff.experiments.report.data.statistics import Estimate, higher_is_better, pareto_front
from commeff.experiments.report.draw.axes import AxisLimits, cuts, fit, limits, logarithmic
from commeff.experiments.report.draw.figures import INK, QUIET, Look, folded, letters, room
from commeff.experiments.report.draw.labels import Label, end_labels, write_labels

EARLY = 0.15  # the part of training that does not decide the limits of an accuracy
LOGARITHMIC = ("wire_bytes", "modelled_seconds", "simulated_seconds")
ROUNDING = 1e-8  # a part of the largest value that is nothing but rounding
BEYOND = 100.0  # times what is shown at most: what is above is drawn there
BESIDE = 2.7  # inches of a line of a label
ENDS = 1.6  # and of one at the end of a line
PALE: dict[str, Any] = {"color": QUIET, "alpha": 0.4}  # what has no name


@dataclass(frozen=True, eq=False)
class Line:
    """A variant to be drawn: its number and name, its look, and its means over seeds (`statistics.mean_curve`).

    One that diverged has no say in what a panel shows; one without a name is grey.
    """

    number: int
    name: str
    look: Look
    means: pd.DataFrame
    diverged: bool = False
    named: bool = True


@dataclass(frozen=True)
class Spot:
    """A variant's final metric and the bytes it took."""

    number: int
    name: str
    look: Look
    cost: float
    final: Estimate
    named: bool = True


def curves(axes: Axes, lines: Sequence[Line], x: str, y: str, place: str = "") -> None:
    """Means and bands of all variants against one thing; `place` is where modelled seconds are those of."""
    highest, scale, shown = top(lines), quantity(x).scale, line_limits(lines, y)
    for line in sorted(lines, key=lambda line: line.named):
        _curve(axes, line, scale, highest, shown)
    if x in LOGARITHMIC:
        logarithmic(axes, "x")
    fit(axes, "y", shown)
    _percent(axes, y)
    axes.set(xlabel=quantity(x).axis)
    axes.set_title(f"{quantity(y).words} on {place}" if place else quantity(y).words, color=INK)
    last = [(line, line.means.dropna(subset=["y"]).iloc[-1]) for line in lines if line.named]
    end_labels(axes, [_name(line, float(end["x"]) * scale, min(float(end["y"]), highest)) for line, end in last])


def _name(line: Line, x: float, y: float) -> Label:
    return Label(x, y, folded(line.name, ENDS), line.look.colour, line.number)


def tradeoff(axes: Axes, spots: Sequence[Spot], metric: str, reference: float | None) -> None:
    """Points with intervals, the Pareto front, and the bytes of dense numbers of 16 bits."""
    front = [spots[i] for i in pareto_front([s.cost for s in spots], [s.final.mean for s in spots], metric)]
    corners = [(s.cost, s.final.mean) for s in front]
    axes.step(*zip(*corners, strict=True), where="post", color=QUIET, linewidth=0.9, zorder=1)
    for spot in sorted(spots, key=lambda spot: spot.named):
        ink: dict[str, Any] = {"color": spot.look.colour if spot.named else QUIET, "gid": f"variant-{spot.number}"}
        axes.plot([spot.cost, spot.cost], spot.final.ends, linewidth=1.0, alpha=0.45 if spot.named else 0.2, **ink)
        marker: Any = {"marker": spot.look.marker, "fillstyle": "none" if spot.final.half is None else "full"}
        axes.plot(spot.cost, spot.final.mean, **marker, markersize=6.5 if spot.named else 4.5, zorder=3, **ink)
    axes.margins(x=0.12, y=0.08)
    logarithmic(axes, "x")
    fit(axes, "y", spot_limits(spots, metric))
    _percent(axes, metric)
    if reference is not None:
        axes.axvline(reference, color=QUIET, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
        words, at = "parallel SGD with 16-bit numbers", axes.get_xaxis_transform()
        axes.text(
            reference, 0.015, f"{words} ", transform=at, rotation=90, ha="right", fontsize=letters(7.5), color=QUIET
        )
    axes.set(xlabel=quantity("wire_bytes").axis, ylabel=f"final {quantity(metric).words}")
    bars = [(s.cost, s.final.ends[0], s.cost, s.final.ends[1]) for s in spots]
    steps = [(x, y, end, y) for (x, y), (end, _) in pairwise(corners)]
    labels = [
        Label(s.cost, s.final.mean, folded(s.name, BESIDE), s.look.colour if s.named else QUIET, s.number)
        for s in spots
        if s.named or s in front
    ]
    low, high = axes.get_ylim()
    dense = [] if reference is None else [(reference, low, reference, high)]
    write_labels(axes, labels, [*bars, *steps, *dense], [(s.cost, s.final.mean) for s in spots])


def swept(axes: Axes, line: Line, chosen: float, key: str, by: str, limits: tuple[float, float]) -> None:
    """The finals of one variant for every value of a tuned number, `line.means` holding a row a seed."""
    points, colour = line.means, line.look.colour
    means = points.groupby(key)[by].mean()
    axes.plot(points[key], points[by].clip(*limits), "o", color=colour, markersize=3, alpha=0.55, markeredgewidth=0)
    axes.plot(means.index, means.clip(*limits), color=colour, linewidth=1.3)
    if chosen in means.index:
        axes.plot([chosen], [means[chosen]], "o", markersize=8, color=INK, fillstyle="none", markeredgewidth=1.1)
    if (points[key] > 0).all():
        logarithmic(axes, "x")
    if len(means) <= 6:
        axes.set_xticks(list(means.index), [f"{value:g}" for value in means.index])
    span = limits[1] - limits[0]
    axes.set_ylim(limits[0] - 0.04 * span, limits[1] + 0.08 * span)
    _percent(axes, by)
    _small(axes, line, called(key), by)


def _small(axes: Axes, line: Line, x: str, y: str) -> None:
    """The title and the names of the axes of a small panel."""
    axes.set_title(folded(line.name, room(axes)), fontsize=letters(8), color=line.look.colour)
    axes.set_xlabel(x, fontsize=letters(7.5))
    axes.set_ylabel(quantity(y).words, fontsize=letters(7.5))


def sound(lines: Sequence[Line]) -> Sequence[Line]:
    """The lines that decide what a panel shows: all that did not diverge, if there are any."""
    return [line for line in lines if not line.diverged] or lines


def top(lines: Sequence[Line]) -> float:
    """Above every panel: where curves that explode are cut."""
    return BEYOND * max(float(line.means["y"].max()) for line in sound(lines))


def _curve(axes: Axes, line: Line, scale: float, top: float, shown: AxisLimits) -> None:
    means, gid = line.means, f"variant-{line.number}"
    look = replace(line.look, hollow=bool((means["n"] == 1).all()))
    x, (y, low, high) = means["x"].to_numpy() * scale, np.minimum(means[["y", "low", "high"]].to_numpy().T, top)
    if not line.named:
        axes.plot(x, y, **PALE, linewidth=0.8, zorder=1.5, gid=gid)
        return
    if shown.logarithm:
        low = np.maximum(low, y**2 / np.maximum(high, shown.outer[0]))  # no further down than up
    if (high > low).any():
        axes.fill_between(x, low, high, color=look.colour, alpha=0.13, linewidth=0, gid=gid)
    spacing = (0.04 + 0.02 * (line.number % 7), 0.17)  # markers of different lines do not fall together
    axes.plot(x, y, **look.line, markevery=spacing, gid=gid)


def line_limits(lines: Sequence[Line], y: str) -> AxisLimits:
    """What matters of means: the late part of an accuracy, all of anything else."""
    lines = sound(lines)
    last = max(float(line.means["step"].max()) for line in lines)
    means = [line.means["y"] for line in lines]
    if higher_is_better(y):
        late = [line.means["y"][line.means["step"] >= EARLY * last] for line in lines]
        ranges = [(float(end.min()), float(all_.max())) for end, all_ in zip(late, means, strict=True) if len(end)]
        return limits(ranges or [(float(mean.min()), float(mean.max())) for mean in means], (0.0, 1.0), logarithm=False)
    top = sorted(float(mean.max()) for mean in means)[len(means) // 2]  # one that explodes is no measure of rounding
    floor = ROUNDING * top if min(float(mean.min()) for mean in means) >= 0 else -math.inf
    return limits([(max(floor, float(mean.min())), max(floor, float(mean.max()))) for mean in means])


def spot_limits(spots: Sequence[Spot], metric: str) -> AxisLimits:
    """Final values with room for their intervals, which do not decide the scale where seeds are few."""
    values = [spot.final.mean for spot in spots]
    if all(spot.final.log for spot in spots):
        return limits([spot.final.ends for spot in spots], logarithm=True)
    room = max(values) - min(values) or max(2 * (spot.final.half or 0.0) for spot in spots) or 1.0
    ends = [(max(s.final.ends[0], s.final.mean - room), min(s.final.ends[1], s.final.mean + room)) for s in spots]
    known = (0.0, 1.0) if higher_is_better(metric) else (0.0 if min(values) >= 0 else -math.inf, math.inf)
    if cuts([(value, value) for value in values]) == (min(values), max(values)):
        ends = [(min(low for low, _ in ends), max(high for _, high in ends))]
    return limits(ends, known, logarithm=False)


def _percent(axes: Axes, metric: str) -> None:
    if metric.endswith("accuracy"):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{100 * value:.4g} %"))
