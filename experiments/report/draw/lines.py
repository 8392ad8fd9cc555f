"""Means with their intervals along an axis of numbers, curves or words: lines named at their ends, guides in grey.

What tables of papers and `commeff figure` draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from commeff.experiments.report.draw.axes import few, logarithmic, plain
from commeff.experiments.report.draw.figures import (
    DASHES,
    FONT_SIZE,
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

Points = NDArray[np.float64]  # shape (points, 4): x, mean, ends of its interval; or (points, 2)
WIDE, HIGH = 2.9, 2.1  # inches of axes
NAMED = 1.7  # inches of a line of a label
FEW = 8  # values along an axis that get ticks of their own
DENSE = 12  # points of a curve without markers
DODGE = 0.09  # by which lines stand aside of each other over words


@dataclass(frozen=True, eq=False)
class MeanLine:
    """A line of a panel: which colour it has, and which style among those of its colour.

    `printed` are published values; `guides` what each guide that is a line's own is along it.
    """

    label: str
    colour: int
    style: int
    points: Points
    printed: Points = field(default_factory=lambda: np.empty((0, 2)))
    guides: Mapping[str, Points] = field(default_factory=dict)
    ink: str = ""  # instead of its colour

    @property
    def look(self) -> Look:
        """Colour, dash and marker."""
        base = look(self.colour + 1)
        dash = DASHES[(DASHES.index(base.dash) + self.style) % len(DASHES)]
        marker = MARKERS[(self.colour + self.style) % len(MARKERS)]
        return replace(base, colour=self.ink or base.colour, dash=dash, marker=marker)


@dataclass(frozen=True, eq=False)
class LinePanel:
    """The lines of a panel."""

    title: str
    lines: Sequence[MeanLine]


@dataclass(frozen=True, eq=False)
class Drawing:
    """All panels of a figure.

    `places` are the words along a horizontal axis that is of words; `log` names the logarithmic axes. `guides` are grey
    lines by what they are called: powers of x through the first line, or None where lines have their own.
    """

    panels: Sequence[LinePanel]
    x_title: str
    y_title: str
    places: Sequence[str] = ()
    curves: bool = False
    log: str = ""
    guides: Mapping[str, float | None] = field(default_factory=dict)


def figure(
    name: str,
    title: str,
    drawn: Drawing,
    key: Sequence[tuple[str, Look]] = (),
    style: Mapping[str, Any] = MappingProxyType({}),
) -> Figure:
    """The mean over seeds, and its 95 % interval; of a style its width, height and font_size.

    Lines are named in the last panel if all panels have the same, otherwise in each panel.
    """
    size, width, height = style.get("font_size", FONT_SIZE) / FONT_SIZE, style.get("width"), style.get("height")
    wide = max(WIDE, sum(0.15 + inches_wide("\n".join(place.split())) for place in drawn.places))
    places = max((len(place.split()) for place in drawn.places), default=0)
    limits = _limits(drawn)
    alike = len({frozenset(line.label for line in panel.lines) for panel in drawn.panels}) == 1
    parts = []
    for i, panel in enumerate(drawn.panels):
        final = panel is drawn.panels[-1]
        named = [line.label for line in panel.lines if line.label and (final or not alike)]
        named += [guide for guide in drawn.guides if guide and final]
        folds = {label: folded(label, NAMED) for label in named}
        right = size * max((ASIDE + inches_wide(text) + 0.08 for text in folds.values()), default=0.15)
        left, below = size * (0.2 if i else 0.75), size * max(0.45, 0.22 + LOWER * places)
        above = size * (0.3 if any(other.title for other in drawn.panels) else 0.12)
        draw = partial(_panel, panel=panel, drawn=drawn, limits=limits, names=folds, first=i == 0)
        across = width / len(drawn.panels) if width else left + wide + right
        parts.append(Panel(str(i), draw, across, height or HIGH + below + above, (left, right, below, above)))
    return Figure(name, title, "", parts, len(parts), legend=key)


def _panel(
    axes: Axes,
    panel: LinePanel,
    drawn: Drawing,
    limits: tuple[tuple[float, float], tuple[float, float]],
    names: dict[str, str],
    first: bool,
) -> None:
    for axis in drawn.log:
        axes.set(**{f"{axis}scale": "log"})
    axes.set(xlim=limits[0], ylim=limits[1], xlabel=drawn.x_title)
    axes.set_title(panel.title, color=INK)
    axes.set_ylabel(drawn.y_title if first else "")
    ends = [
        Label(*_end(line), names[line.label], line.look.colour, i)
        for i, line in enumerate(panel.lines)
        if line.label in names
    ]
    for i, line in enumerate(panel.lines):
        draw_line(axes, line, drawn, limits[1][0], (i - (len(panel.lines) - 1) / 2) * DODGE if drawn.places else 0.0)
    for guide, exponent in drawn.guides.items():
        points = _guide(axes, guide, exponent, panel)
        if len(points) and guide in names:
            ends.append(Label(points[-1, 0], points[-1, 1], names[guide], QUIET, len(ends)))
    places = sorted({float(x) for line in panel.lines for x in (*line.points[:, 0], *line.printed[:, 0])})
    if drawn.places:
        axes.set_xticks(range(len(drawn.places)), [place.replace(" ", "\n") for place in drawn.places])
    elif not drawn.curves and len(places) <= FEW and all(math.isclose(float(f"{x:.3g}"), x) for x in places):
        few(axes, places)
    elif "x" in drawn.log:
        logarithmic(axes, "x")
    if "y" in drawn.log:
        logarithmic(axes, "y")
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, position: plain(value)))
    axes.tick_params(labelleft=first)
    end_labels(axes, [replace(end, y=min(max(end.y, limits[1][0]), limits[1][1])) for end in ends])


def _end(line: MeanLine) -> tuple[float, float]:
    """Where a line has its name: at its last point, or where a guide of its own goes on to."""
    points = line.points if len(line.points) else line.printed
    ends = [(float(curve[-1, 0]), float(curve[-1, 1])) for curve in (points, *line.guides.values()) if len(curve)]
    return max(ends, key=lambda end: end[0])


def draw_line(axes: Axes, line: MeanLine, drawn: Drawing, bottom: float, aside: float = 0.0) -> None:
    """Means with intervals, and what is printed: joined where no two points stand above each other."""
    look, (x, mean, low, high) = line.look, line.points.T
    low = np.maximum(low, bottom)
    if drawn.curves:
        marker = look.marker if len(x) <= DENSE else ""
        axes.plot(x, mean, color=look.colour, linestyle=look.dash, marker=marker, label=line.label)
        axes.fill_between(x, low, high, color=look.colour, alpha=0.13, linewidth=0)
    else:
        joined = len({*x}) == len(x) and not drawn.places
        dash = look.dash if joined else ""
        axes.plot(x + aside, mean, color=look.colour, linestyle=dash, marker=look.marker, label=line.label)
        axes.vlines(x + aside, low, high, color=look.colour, linewidth=1.0, alpha=0.5)
    if len(line.printed):
        hollow: dict[str, Any] = {"marker": look.marker, "markersize": 6.5, "fillstyle": "none", "linestyle": ""}
        axes.plot(line.printed[:, 0] + aside, line.printed[:, 1], color=look.colour, zorder=3, **hollow)


def _guide(axes: Axes, guide: str, exponent: float | None, panel: LinePanel) -> Points:
    """A grey line, or one of each line's colour where lines have their own that differ; the points of the last."""
    style: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (3, 2)), "zorder": 2.5}
    if exponent is not None:
        points = power(panel, exponent)
        axes.plot(*points.T, color=QUIET, **style)
        return points
    guides = [(line, line.guides[guide]) for line in panel.lines if len(line.guides.get(guide, ()))]
    every = np.unique(np.concatenate([points for _, points in guides]), axis=0) if guides else np.empty((0, 2))
    if len({*every[:, 0]}) == len(every) or len(guides) == 1:
        axes.plot(*every.T, color=QUIET, **style)
        return every
    for line, points in guides:
        axes.plot(*points.T, color=line.look.colour, **style)
    return guides[-1][1]


def power(panel: LinePanel, exponent: float) -> Points:
    """A power of x through the middle of the line that is most like it."""
    several = [line.points for line in panel.lines if len({*line.points[:, 0]}) > 1 and (line.points[:, :2] > 0).all()]
    if not several:
        return np.empty((0, 2))
    logs = [np.log(points[:, :2]).T for points in several]
    x, y = min(logs, key=lambda line: abs(np.polyfit(line[0], line[1], 1)[0] - exponent))
    across = np.geomspace(float(np.exp(x[0])), float(np.exp(x[-1])), 50)
    return np.stack([across, np.exp(y.mean() + exponent * (np.log(across) - x.mean()))], axis=1)


def _limits(drawn: Drawing) -> tuple[tuple[float, float], tuple[float, float]]:
    """What all panels show: all means and printed values, and of intervals as much again as means span, or as half of
    the intervals do."""
    lines = [line for panel in drawn.panels for line in panel.lines]
    x, y = np.concatenate(
        [np.empty((0, 2)), *(part for line in lines for part in (line.points[:, :2], line.printed))]
    ).T
    guides = chain(*(points[:, 1] for line in lines for points in line.guides.values()))
    wide = [*chain(*(line.points[:, 2:].ravel() for line in lines))]
    across = _hull([*x], [], "x" in drawn.log, 0.03 * drawn.curves or 0.06)
    if drawn.places:
        across = (-0.5, len(drawn.places) - 0.5)
    return across, _hull([*y, *guides], wide, "y" in drawn.log, 0.05)


def _hull(means: list[float], wide: Sequence[float], log: bool, pad: float) -> tuple[float, float]:
    if not means:
        return (0.1, 1.0)
    turn = math.log10 if log else float
    low, high = turn(min(means)), turn(max(means))
    lengths = [turn(b) - turn(a) for a, b in zip(wide[::2], wide[1::2], strict=True) if not log or a > 0]
    room = max(high - low, float(np.median(lengths or [0.0])))
    ends = [turn(end) for end in wide if not log or end > 0]
    low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    space = pad * (high - low) or (0.1 if log else 0.1 * abs(high) or 1.0)
    back = (lambda end: 10**end) if log else float
    return back(low - space), back(high + space)
