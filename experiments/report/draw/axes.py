"""What an axis shows: its limits, by logarithm where values span much, broken where a few would squeeze the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from commeff.experiments.report.data.statistics import MUCH
from commeff.experiments.report.draw.figures import LETTER, QUIET, RULE, letters

SQUEEZED = 0.3  # where all but a few have no more of an axis, it is broken
ASIDE = 0.16  # of a broken axis: what the few have of it
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class AxisLimits:
    """What an axis shows: from where to where all but a few variants are, and all of them."""

    inner: tuple[float, float]
    outer: tuple[float, float]
    ends: tuple[float, float]  # the least and the most there is
    logarithm: bool = False

    @property
    def broken(self) -> bool:
        """Whether a few variants would squeeze the others."""
        return self.inner != self.outer


def limits(
    ranges: Sequence[tuple[float, float]],
    known: tuple[float, float] = (-math.inf, math.inf),
    logarithm: bool | None = None,
) -> AxisLimits:
    """What an axis shows of variants that reach from somewhere to somewhere; by logarithm where they span much.

    Parameters
    ----------
    known : between what values are possible.
    logarithm : None where it may be one.
    """
    low, high = _hull(ranges)
    logarithm = 0 < MUCH * low <= high if logarithm is None else logarithm
    turn, back = (math.log10, lambda end: 10**end) if logarithm else (float, float)
    ends = [(turn(one), turn(other)) for one, other in ranges]
    (low, high), (bottom, top) = _hull(ends), cuts(ends)
    pad = 0.06 * (top - bottom) or 0.02 * (high - low) or 0.02 * abs(high) or 1.0
    least = low - (0.1 * (bottom - low) if bottom > low else pad)
    most = high + (0.1 * (high - top) if top < high else pad)
    inner = (max(least, bottom - pad) if bottom > low else least, min(most, top + pad) if top < high else most)
    outer = (max(known[0], back(least)), min(known[1], back(most)))
    inner = (max(outer[0], back(inner[0])), min(outer[1], back(inner[1])))
    return AxisLimits(inner, outer, (back(low), back(high)), logarithm)


def _hull(ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def cuts(ranges: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """From where to where all but a few ranges reach, if they had little of an axis otherwise; else all of them.

    >>> cuts([(0.95, 0.97), (0.94, 0.97), (0.1, 0.12)]), cuts([(0.5, 0.97), (0.3, 0.97), (0.1, 0.12)])
    ((0.94, 0.97), (0.1, 0.97))
    """
    hull, ordered, few = _hull(ranges), sorted(ranges), (len(ranges) - 1) // 2
    best, fewest = hull, few
    for below in range(few + 1):
        rest = sorted(ordered[below:], key=lambda span: span[1])
        lows = [*accumulate((low for low, _ in rest), min)]
        for count in range(max(below, 1), fewest + 1):
            low, high = lows[-1 - count + below], rest[-1 - count + below][1]
            if high - low < SQUEEZED * (hull[1] - hull[0]):
                best, fewest = (low, high), count
                break
    return best


def fit(axes: Axes, which: str, shown: AxisLimits) -> None:
    """Give an axis its limits; a broken one is pressed together beyond the dashed line. Called when all is drawn."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}lim": shown.outer})
    if not shown.broken:
        if shown.logarithm:
            logarithmic(axes, which)
        return
    base = (lambda v: np.log10(np.maximum(v, 1e-300))) if shown.logarithm else np.asarray
    (low, high), (bottom, top) = base(np.array(shown.outer)), base(np.array(shown.inner))
    beside = ASIDE * (top - bottom)
    down = beside / (bottom - low) if low < bottom else 1.0
    up = beside / (high - top) if high > top else 1.0

    def forward(values: NDArray[np.float64]) -> NDArray[np.float64]:
        at = base(values)
        return at + np.minimum(at - bottom, 0) * (down - 1) + np.maximum(at - top, 0) * (up - 1)

    def inverse(at: NDArray[np.float64]) -> NDArray[np.float64]:
        at = np.asarray(at)
        at = at + np.minimum(at - bottom, 0) * (1 / down - 1) + np.maximum(at - top, 0) * (1 / up - 1)
        return 10**at if shown.logarithm else at

    scale = axes.set_xscale if which == "x" else axes.set_yscale
    scale("function", functions=(forward, inverse))
    axes.set(**{f"{which}lim": shown.outer})
    locator = LogTicks(math.inf) if shown.logarithm else MaxNLocator(5 if which == "y" else 4)
    inside = [tick for tick in locator.tick_values(*shown.inner) if shown.inner[0] <= tick <= shown.inner[1]]
    aside = [float(f"{end:.2g}") for i, end in enumerate(shown.ends) if shown.outer[i] != shown.inner[i]]
    axis.set_major_locator(FixedLocator(sorted([*inside, *aside])))
    axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:.4g}"))
    axis.set_minor_locator(NullLocator())
    for end, other in zip(shown.outer, shown.inner, strict=True):
        if end != other:
            line, span = (axes.axvline, axes.axvspan) if which == "x" else (axes.axhline, axes.axhspan)
            line(other, color=QUIET, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1.5)
            span(*sorted((end, other)), color=RULE, alpha=0.35, linewidth=0, zorder=0)


class LogTicks(LogLocator):
    """Ticks of a logarithmic axis: 1, 2, 5 of each decade, fewer where there is no room, and at least three.

    >>> [LogTicks(9).tick_values(*ends) for ends in ((3.1, 4.7), (0.9, 25))]
    [[3.5, 4.0, 4.5], [1.0, 2.0, 5.0, 10.0, 20.0]]
    >>> LogTicks(4).tick_values(0.9, 1100), LogTicks(4).tick_values(1, 1e9)
    ([1.0, 10.0, 100.0, 1000.0], [1.0, 1000.0, 1000000.0, 1000000000.0])
    """

    def __init__(self, room: float) -> None:
        super().__init__()
        self.room = room  # labels that fit

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """The ticks between two ends."""
        first, last = math.floor(math.log10(vmin)), math.ceil(math.log10(vmax))
        choices = [((1, 2, 5), 1), ((1, 3), 1), *(((1,), stride) for stride in range(1, 1 + (last - first) // 2))]
        tries = [
            [sub * 10.0**power for power in range(first - first % stride, last + 1, stride) for sub in subs]
            for subs, stride in choices
        ]
        tries += [[*MaxNLocator(bins, steps=[1, 2, 2.5, 5, 10]).tick_values(vmin, vmax)] for bins in (5, 4, 6, 8)]
        within = [[float(tick) for tick in ticks if vmin * (1 - 1e-9) <= tick <= vmax * (1 + 1e-9)] for ticks in tries]
        enough = [ticks for ticks in within if len(ticks) > 2]
        return next((ticks for ticks in enough if len(ticks) <= self.room), min(enough or within[-1:], key=len))


def logarithmic(axes: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers, as many as there is room for. Called when everything is drawn."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    inches = (axes.bbox.width / 0.42 if which == "x" else axes.bbox.height / 0.2) / axes.figure.dpi
    axis.set_major_locator(LogTicks(inches / letters(1.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, position: plain(value)))
    axis.set_minor_locator(NullLocator())


def few(axes: Axes, values: Sequence[float]) -> None:
    """Ticks of a horizontal axis at the values themselves, but those that there is no room for."""
    places, last = [], -math.inf
    for value in sorted(values):
        inches = axes.transData.transform((value, 1.0))[0] / axes.figure.dpi
        half = letters(LETTER) * len(plain(value)) / 2 + 0.03
        if inches - half > last:
            places.append(value)
            last = inches + half
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, position: plain(value)))
    axes.xaxis.set_minor_locator(NullLocator())


def plain(value: float) -> str:
    """A number at a tick: a power of ten where it would be long otherwise.

    >>> plain(0.05), plain(4096), plain(1e-15), plain(2e6)
    ('0.05', '4,096', '10⁻¹⁵', '2·10⁶')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    digits, _, power = f"{value:.3g}".partition("e") if "e" in f"{value:.3g}" else f"{value:e}".partition("e")
    raised = str(int(power)).translate(RAISED)
    return f"10{raised}" if float(digits) == 1 else f"{float(digits):g}·10{raised}"
