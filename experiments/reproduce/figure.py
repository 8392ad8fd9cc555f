"""The figure of a table, in the style of reports: lines named at their ends, printed values as open markers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from commeff.experiments.report.draw.axes import few, logarithmic
from commeff.experiments.report.draw.figures import (
    DASHES,
    INK,
    LOWER,
    MARKERS,
    QUIET,
    Figure,
    Look,
    Panel,
    folded,
    inches_wide,
    look,
)
from commeff.experiments.report.draw.labels import ASIDE, Label, end_labels
from commeff.experiments.reproduce.plot import Drawing, Plot, TableLine, TablePanel, drawing
from commeff.experiments.reproduce.results import Results

WIDE, HIGH = 2.9, 2.1  # inches of axes
NAMED = 1.7  # inches of a line of a label
FEW = 8  # values along an axis that get ticks of their own
DENSE = 12  # points of a curve without markers
DODGE = 0.09  # by which lines stand aside of each other over words


def figure(results: Results, plot: Plot) -> Figure:
    """The figure of a table: the mean over seeds, and its 95 % interval."""
    drawn = drawing(results, plot)
    wide = max(WIDE, sum(0.15 + inches_wide("\n".join(place.split())) for place in drawn.places))
    below = max(0.45, 0.22 + LOWER * max((len(place.split()) for place in drawn.places), default=0))
    limits = _limits(drawn, plot)
    last = {line.label: panel for panel in drawn.panels for line in panel.lines}
    parts = []
    for i, panel in enumerate(drawn.panels):
        named = [line.label for line in panel.lines if last[line.label] is panel and line.label]
        named += plot.guides if panel is drawn.panels[-1] else []
        folds = {label: folded(label, NAMED) for label in named}
        right = max((ASIDE + inches_wide(text) + 0.08 for text in folds.values()), default=0.15)
        left = 0.2 if i else 0.75
        axes_of = partial(_panel, panel=panel, drawn=drawn, plot=plot, limits=limits, names=folds, first=i == 0)
        parts.append(Panel(str(i), axes_of, left + wide + right, HIGH + 0.3 + below, (left, right, below, 0.3)))
    printed = [number for number in results.table.numbers if number.of.text == plot.y.text]
    kinds = {"from theory" if callable(each.value) else plot.published for each in printed}
    shown = any(len(line.printed) for panel in drawn.panels for line in panel.lines)
    key = [(f"open: {' or '.join(sorted(kinds))}", Look(QUIET, "", "o", hollow=True))] if shown else []
    return Figure("figure", results.table.title, "", parts, len(parts), legend=key)


def _panel(
    axes: Axes,
    panel: TablePanel,
    drawn: Drawing,
    plot: Plot,
    limits: tuple[tuple[float, float], tuple[float, float]],
    names: dict[str, str],
    first: bool,
) -> None:
    for axis in plot.log:
        axes.set(**{f"{axis}scale": "log"})
    axes.set(xlim=limits[0], ylim=limits[1], xlabel=drawn.x_title)
    axes.set_title(panel.title, color=INK)
    axes.set_ylabel(drawn.y_title if first else "")
    ends = [
        Label(*_end(line), names[line.label], _look(line).colour, i)
        for i, line in enumerate(panel.lines)
        if line.label in names
    ]
    for i, line in enumerate(panel.lines):
        _line(axes, line, drawn, limits[1][0], (i - (len(panel.lines) - 1) / 2) * DODGE if drawn.places else 0.0)
    for guide, of in plot.guides.items():
        points = _guide(axes, guide, of, panel)
        if len(points) and guide in names:
            ends.append(Label(points[-1, 0], points[-1, 1], names[guide], QUIET, len(ends)))
    places = sorted({float(x) for line in panel.lines for x in (*line.points[:, 0], *line.printed[:, 0])})
    if drawn.places:
        axes.set_xticks(range(len(drawn.places)), [place.replace(" ", "\n") for place in drawn.places])
    elif not drawn.curves and len(places) <= FEW:
        few(axes, places)
    elif "x" in plot.log:
        logarithmic(axes, "x")
    if "y" in plot.log:
        logarithmic(axes, "y")
    axes.tick_params(labelleft=first)
    if ends:
        end_labels(axes, [replace(end, y=min(max(end.y, limits[1][0]), limits[1][1])) for end in ends])


def _end(line: TableLine) -> tuple[float, float]:
    points = line.points if len(line.points) else line.printed
    return float(points[-1, 0]), float(points[-1, 1])


def _look(line: TableLine) -> Look:
    """That of a variant; its lines differ in dashes."""
    own, style = look(line.colour + 1), line.style
    dash = DASHES[(DASHES.index(own.dash) + style) % len(DASHES)]
    return replace(own, dash=dash, marker=MARKERS[(line.colour + style) % len(MARKERS)])


def _line(axes: Axes, line: TableLine, drawn: Drawing, bottom: float, aside: float) -> None:
    """Means with intervals, and what is printed: joined where no two points stand above each other."""
    own, (x, mean, low, high) = _look(line), line.points.T
    low = np.maximum(low, bottom)
    if drawn.curves:
        marker = own.marker if len(x) <= DENSE else ""
        axes.plot(x, mean, color=own.colour, linestyle=own.dash, marker=marker)
        axes.fill_between(x, low, high, color=own.colour, alpha=0.13, linewidth=0)
    else:
        joined = len({*x}) == len(x) and not drawn.places
        axes.plot(x + aside, mean, color=own.colour, linestyle=own.dash if joined else "", marker=own.marker)
        axes.vlines(x + aside, low, high, color=own.colour, linewidth=1.0, alpha=0.5)
    if len(line.printed):
        hollow: dict[str, Any] = {"marker": own.marker, "markersize": 6.5, "fillstyle": "none", "linestyle": ""}
        axes.plot(line.printed[:, 0] + aside, line.printed[:, 1], color=own.colour, zorder=3, **hollow)


def _guide(axes: Axes, guide: str, of: float | Callable[[Any], Any], panel: TablePanel) -> np.ndarray:
    """A grey line, or one of each line's colour where a function tells them apart; the points of the last."""
    style: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (3, 2)), "zorder": 1.5}
    if not callable(of):
        points = power(panel, float(of))
        axes.plot(*points.T, color=QUIET, **style)
        return points
    found = [(line, line.guides[guide]) for line in panel.lines if len(line.guides.get(guide, ()))]
    every = np.unique(np.concatenate([points for _, points in found]), axis=0) if found else np.empty((0, 2))
    if len({*every[:, 0]}) == len(every) or len(found) == 1:
        axes.plot(*every.T, color=QUIET, **style)
        return every
    for line, points in found:
        axes.plot(*points.T, color=_look(line).colour, **style)
    return found[-1][1]


def power(panel: TablePanel, exponent: float) -> np.ndarray:
    """A power of x through the middle of the first line that has several points."""
    several = (line.points for line in panel.lines if len({*line.points[:, 0]}) > 1)
    points = next(several, np.empty((0, 4)))
    if not len(points) or points[0, 0] <= 0:
        return np.empty((0, 2))
    x = np.geomspace(points[0, 0], points[-1, 0], 50)
    at, level = np.exp(np.mean(np.log(points[:, 0]))), np.exp(np.mean(np.log(points[:, 1])))
    return np.stack([x, level * (x / at) ** exponent], axis=1)


def _limits(drawn: Drawing, plot: Plot) -> tuple[tuple[float, float], tuple[float, float]]:
    """What all panels show: all means and printed values, and of intervals as much again as means span."""
    lines = [line for panel in drawn.panels for line in panel.lines]
    x, y = np.concatenate(
        [np.empty((0, 2)), *(part for line in lines for part in (line.points[:, :2], line.printed))]
    ).T
    guides = chain(*(points[:, 1] for line in lines for points in line.guides.values()))
    wide = [*chain(*(line.points[:, 2:].ravel() for line in lines))]
    across = _hull([*x], [], "x" in plot.log, 0.03 * drawn.curves or 0.06)
    if drawn.places:
        across = (-0.5, len(drawn.places) - 0.5)
    return across, _hull([*y, *guides], wide, "y" in plot.log, 0.05)


def _hull(means: list[float], wide: Sequence[float], log: bool, pad: float) -> tuple[float, float]:
    if not means:
        return (0.1, 1.0)
    turn = math.log10 if log else float
    low, high = turn(min(means)), turn(max(means))
    room = high - low
    ends = [turn(each) for each in wide if not log or each > 0]
    low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    space = pad * (high - low) or (0.1 if log else 0.1 * abs(high) or 1.0)
    back = (lambda end: 10**end) if log else float
    return back(low - space), back(high + space)
