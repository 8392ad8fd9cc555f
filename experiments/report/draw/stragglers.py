"""The figure of who waits: the metric against simulated seconds, for every straggler that runs had."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.quantities import quantity
from commeff.experiments.report.data.statistics import mean_curve
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.report.draw import panels
from commeff.experiments.report.draw.figures import INK, Figure, Look, Panel, look
from commeff.experiments.report.draw.panels import Line
from commeff.experiments.report.draw.plots import gone, pressed, shown_metric

SECONDS, KEY = "simulated_seconds", "straggler"


def stragglers(analysis: Analysis) -> Figure | None:
    """A panel for each straggler, all over the same seconds; None where there are not several."""
    metric, families = shown_metric(analysis), _families(analysis)
    factors = sorted({_factor(variant) for variants in families.values() for variant in variants})
    if len(factors) < 2:
        return None
    shown: list[tuple[float, list[Line]]] = []
    for factor in factors:
        lines = [
            Line(number, name, styled, mean_curve(variant.curves, SECONDS, metric), variant.diverged)
            for number, ((name, variants), styled) in enumerate(zip(families.items(), _looks(families), strict=True))
            for variant in variants
            if _factor(variant) == factor and {SECONDS, metric} <= {*variant.curves}
        ]
        shown += [(factor, [line for line in lines if not line.means.empty])]
    shown = [(factor, lines) for factor, lines in shown if lines]
    if len(shown) < 2:
        return None
    ends = pd.concat([line.means["x"] for _, lines in shown for line in lines])
    span = (float(ends.min()), float(ends.max()))
    parts = [
        Panel(f"{KEY}-{factor:g}", partial(_draw, lines=lines, metric=metric, factor=factor, span=span))
        for factor, lines in shown
    ]
    frames = [line.means.assign(variant=line.name, straggler=factor) for factor, lines in shown for line in lines]
    caption = (
        "Lines are means over seeds, bands 95 % intervals (Student's t), against the seconds of the runs' clock, on "
        "one logarithmic scale: they are simulated, and nothing here was measured in time. The last worker computes "
        "for so many times as long as the others."
    )
    caption += pressed(panels.line_limits(lines, metric) for _, lines in shown)
    caption += gone([variant.name for variants in families.values() for variant in variants if variant.diverged])
    data = pd.concat(frames, ignore_index=True).rename(columns={"x": SECONDS, "y": metric})
    legend = [*zip(families, _looks(families), strict=True)]
    return Figure(
        "stragglers", "Against simulated seconds", caption, parts, min(3, len(parts)), data, legend, own_key=True
    )


def _draw(axes: Axes, lines: Sequence[Line], metric: str, factor: float, span: tuple[float, float]) -> None:
    panels.curves(axes, lines, SECONDS, metric)
    who = "all workers alike" if factor == 1 else f"one {factor:g} times as slow"
    axes.set_title(f"{quantity(metric).words}, {who}", color=INK)
    axes.set_xlim(0.9 * span[0], 1.1 * span[1])


def _families(analysis: Analysis) -> dict[str, list[Variant]]:
    """Variants that differ in the straggler alone, and in what is tuned, by the shortest of their names."""
    aside, found = {KEY, "seed", *analysis.grid.over}, dict[tuple[tuple[str, str], ...], list[Variant]]()
    for variant in analysis.variants:
        run = variant.runs[0]
        if run.setting("speeds") is not None and SECONDS in variant.curves:
            found.setdefault(run.settings_without(aside), []).append(variant)
    return {min((variant.name for variant in each), key=len): each for each in found.values()}


def _factor(variant: Variant) -> float:
    return float(variant.runs[0].setting(KEY) or 1.0)


def _looks(families: dict[str, list[Variant]]) -> list[Look]:
    return [look(number) for number in range(len(families))]
