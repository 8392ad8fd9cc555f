"""What one setting does: throughput and time against the number of workers, and simulated seconds by straggler.

Measured and modelled seconds stand apart, with the ideal line beside both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.report.data.analysis import Analysis, clock
from commeff.experiments.report.data.names import called
from commeff.experiments.report.data.quantities import span
from commeff.experiments.report.data.rows import TableRow
from commeff.experiments.report.data.variants import Labels, Variant
from commeff.experiments.report.data.wallclock import Wallclock
from commeff.experiments.report.draw.axes import logarithmic
from commeff.experiments.report.draw.figures import COLOURS, INK, QUIET, Figure, Look, Panel, folded
from commeff.experiments.report.draw.labels import Label, end_labels
from commeff.experiments.report.draw.panels import ENDS, PALE
from commeff.experiments.report.draw.plots import looks, unnamed, wide
from commeff.experiments.report.draw.wallclock import NAMES, WIDE, list_names

MEASURED = "measured"
FINALS = ("samples", "steps", "seconds")
WORKERS = re.compile(r",? *\bworkers[= ]\d+|,? *\b\d+ workers\b(?! \d)")
SECONDS, KEY = "simulated_seconds", "straggler"
BAR = 0.17  # inches
UNITS = {"throughput": "samples a second", "to target": "seconds to the target"}


def scaling(analysis: Analysis, clocks: Sequence[Wallclock]) -> Figure | None:
    """Panels of throughput and of time to the target, first the measured ones, then those of each cluster, if any.

    A line is a family: variants that differ in their workers alone. One that ran with one number of them has none.
    """
    several = {name: rows for name, rows in families(analysis.rows, "workers").items() if len(rows) > 1}
    points = (
        {"family": name, **point} for name, rows in several.items() for row in rows for point in _points(row, clocks)
    )
    data, parts, styles = pd.DataFrame(points), [], looks(analysis)
    if data.empty or data["workers"].nunique() < 2:
        return None
    drawn = {
        name: styles[rows[0].variant.number] if any(row.variant.kind in analysis.prominent for row in rows) else None
        for name, rows in several.items()
    }
    for place in dict.fromkeys(data["place"]):
        for quantity in UNITS:
            group = data[(data["place"] == place) & (data["quantity"] == quantity)]
            if group.empty:
                continue
            title = f"{quantity}, {place if place == MEASURED else f'modelled on {called(place)}'}"
            draw = partial(_lines, points=group, families=drawn, title=title)
            parts.append(wide(f"{place}-{quantity}".replace(".", "-").replace(" ", "-"), draw))
    words = (
        "Means over seeds. Dashed is the ideal, from the fewest workers of the first variant on: n times the "
        f"throughput, an n-th of the time. {clock(analysis)}"
    )
    words += " Panels that say modelled are not measured." if clocks else ""
    return Figure("scaling", "Against the number of workers", words + unnamed(analysis), parts, 2, data)


def families(rows: Iterable[TableRow], key: str) -> dict[str, list[TableRow]]:
    """Rows that differ in one setting alone, under the shortest of their names, in which no number of workers stands.

    >>> [WORKERS.sub("", name) for name in ("gossip, 4 workers", "DSGD lr 0.1 workers 16", "workers=4")]
    ['gossip', 'DSGD lr 0.1', '']
    """
    groups: dict[Labels, list[TableRow]] = {}
    for row in rows:
        others = tuple(label for label in row.variant.labels.items() if label[0] != key)
        groups.setdefault(others, []).append(row)
    names = [min((WORKERS.sub("", row.variant.name) for row in group), key=len) for group in groups.values()]
    return {
        name if name and names.count(name) == 1 else group[0].variant.name: group
        for name, group in zip(names, groups.values(), strict=True)
    }


def _points(row: TableRow, clocks: Sequence[Wallclock]) -> list[dict[str, object]]:
    """Throughput and time to the target of a variant, measured or modelled on a place."""
    workers = row.variant.runs[0].setting("workers")
    done = [run.record for run in row.variant.runs if run.record.state == "done"]
    if workers is None or not done:
        return []
    samples, steps, seconds = (np.array([record.final(name) for record in done]) for name in FINALS)
    with np.errstate(invalid="ignore", divide="ignore"):
        quantities = [(MEASURED, "throughput", float(np.mean(samples / seconds)))]
        a_step = float(np.mean(samples / steps))
    if row.reached and "seconds" in row.reached.costs:
        quantities.append((MEASURED, "to target", row.reached.costs["seconds"].mean))
    for times in clocks:
        modelled = times.of(row.variant)
        if modelled.timeline is None:
            continue
        quantities.append((times.place.name, "throughput", a_step / modelled.timeline.step))
        if modelled.to_target:
            quantities.append((times.place.name, "to target", modelled.to_target.mean))
    return [
        {"workers": int(workers), "place": place, "quantity": name, "value": value}
        for place, name, value in quantities
        if math.isfinite(value) and value > 0
    ]


def _lines(axes: Axes, points: pd.DataFrame, families: Mapping[str, Look | None], title: str) -> None:
    """A line a family, grey without a look, and the ideal."""
    ends = []
    for i, (family, look) in enumerate(families.items()):
        group = points[points["family"] == family].sort_values(["workers", "value"])
        if group.empty:
            continue
        axes.plot(group["workers"], group["value"], **(look.line if look else PALE), gid=f"group-{i}")
        if look:
            last = group.iloc[-1]
            ends.append(Label(last["workers"], last["value"], folded(family, ENDS), look.colour, i))
    of = points.iloc[0]
    first = points[points["family"] == of["family"]].sort_values("workers", kind="stable").iloc[0]
    everything = np.unique(points["workers"])
    sizes = everything[everything >= first["workers"]]
    ideal = first["value"] * (sizes / first["workers"]) ** (1.0 if of["quantity"] == "throughput" else -1.0)
    axes.plot(sizes, ideal, color=QUIET, linestyle=(0, (4, 2)), linewidth=0.9, zorder=1)
    logarithmic(axes, "x")
    logarithmic(axes, "y")
    axes.set_xticks(everything, [str(n) for n in everything])
    modelled = "" if of["place"] == MEASURED else ", modelled"
    axes.set(xlabel="workers", ylabel=f"{UNITS[of['quantity']]}{modelled}")
    axes.set_title(title, color=INK)
    end_labels(axes, ends)


def stragglers(analysis: Analysis) -> Figure | None:
    """A bar for each method and straggler; None where there are not several, or no target."""
    clocked = (
        row
        for row in analysis.rows
        if row.variant.runs[0].setting("speeds") is not None and SECONDS in row.variant.curves
    )
    target, methods = analysis.target, families(clocked, KEY)
    factors = sorted({_factor(row.variant) for rows in methods.values() for row in rows})
    if target is None or len(factors) < 2:
        return None
    data = pd.DataFrame([_bar(name, row) for name, rows in methods.items() for row in rows])
    legend = [(_words(factor), Look(COLOURS[i % len(COLOURS)], "", "s")) for i, factor in enumerate(factors)]
    height = 0.75 + (len(factors) + 1) * BAR * len(methods)
    draw = partial(_bars, data=data, names=[*methods], factors=factors)
    part = Panel("all", draw, WIDE, height, (NAMES, 0.15, 0.45, 0.1))
    counts = [row.reached.of for rows in methods.values() for row in rows if row.reached]
    caption = (
        f"Seconds of the runs' clock to {target.words}: they are simulated, and nothing here was measured in time. "
        f"Means over {span(counts)} seeds with 95 % intervals (Student's t), where all of them "
        "reached it. The last worker computes for so many times as long as the others."
    )
    title = f"Simulated seconds to {target.words}"
    return Figure("stragglers", title, caption, [part], 1, data, legend)


def _bar(name: str, row: TableRow) -> dict[str, object]:
    cost = row.reached.costs.get(SECONDS) if row.reached else None
    reached = {"reached": row.reached.n, "of": row.reached.of, "short": row.reached.short} if row.reached else {}
    mean, half = (cost.mean, cost.half) if cost else (None, None)
    return {"variant": name, KEY: _factor(row.variant), SECONDS: mean, "interval": half} | reached


def _bars(axes: Axes, data: pd.DataFrame, names: Sequence[str], factors: Sequence[float]) -> None:
    thick = 1 / (len(factors) + 1)
    for bar in data.to_dict("records"):
        i = factors.index(bar[KEY])
        y, gid = names.index(bar["variant"]) + thick * (i - (len(factors) - 1) / 2), f"group-{i}"
        if pd.isna(bar[SECONDS]):
            axes.text(0.01, y, bar["short"], transform=axes.get_yaxis_transform(), color=QUIET, va="center", fontsize=7)
            continue
        axes.barh(y, bar[SECONDS], height=0.9 * thick, color=COLOURS[i % len(COLOURS)], zorder=2, gid=gid)
        if pd.notna(bar["interval"]):
            axes.errorbar(bar[SECONDS], y, xerr=bar["interval"], color=INK, linewidth=0.9, capsize=2, zorder=3)
    list_names(axes, names)
    axes.set_xlabel("seconds to the target, simulated")
    axes.set_xlim(left=0)


def _words(factor: float) -> str:
    return "all workers alike" if factor == 1 else f"one {factor:g} times as slow"


def _factor(variant: Variant) -> float:
    return float(variant.runs[0].setting(KEY) or 1.0)
