"""A grid over `workers:`: throughput and time to the target against n, ideal line, measured and modelled apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.report.data.analysis import Analysis, clock
from commeff.experiments.report.data.names import called
from commeff.experiments.report.data.variants import Labels, Variant
from commeff.experiments.report.data.wallclock import Wallclock
from commeff.experiments.report.draw.axes import logarithmic
from commeff.experiments.report.draw.figures import INK, QUIET, Figure, Look, folded
from commeff.experiments.report.draw.labels import Label, end_labels
from commeff.experiments.report.draw.panels import ENDS, PALE
from commeff.experiments.report.draw.plots import looks, unnamed, wide

MEASURED = "measured"
FINALS = ("samples", "steps", "seconds")
WORKERS = re.compile(r",? *\bworkers[= ]\d+|,? *\d+ workers\b")
UNITS = {"throughput": "samples a second", "to target": "seconds to the target"}


def scaling(analysis: Analysis, clocks: Sequence[Wallclock]) -> Figure | None:
    """Panels of throughput and of time to the target, first the measured ones, then those of each cluster, if any.

    A line is a family: variants that differ in their workers alone. One that ran with one number of them has none.
    """
    families = {name: variants for name, variants in _families(analysis).items() if len(variants) > 1}
    rows = [
        {"family": name, **point}
        for name, variants in families.items()
        for variant in variants
        for point in _points(analysis, variant, clocks)
    ]
    data, parts, styles = pd.DataFrame(rows), [], looks(analysis)
    if data.empty or data["workers"].nunique() < 2:
        return None
    drawn = {
        name: styles[variants[0].number] if any(v.kind in analysis.prominent for v in variants) else None
        for name, variants in families.items()
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


def _families(analysis: Analysis) -> dict[str, list[Variant]]:
    """Variants by the labels that they share but for the workers, under the shortest of their names without these.

    >>> WORKERS.sub("", "gossip, 4 workers"), WORKERS.sub("", "DSGD ring workers 16"), WORKERS.sub("", "workers=4")
    ('gossip', 'DSGD ring', '')
    """
    families: dict[Labels, list[Variant]] = {}
    for variant in analysis.variants:
        key = tuple((key, value) for key, value in variant.labels.items() if key != "workers")
        families.setdefault(key, []).append(variant)
    names = [min((WORKERS.sub("", variant.name) for variant in variants), key=len) for variants in families.values()]
    return {
        name if name and names.count(name) == 1 else variants[0].name: variants
        for name, variants in zip(names, families.values(), strict=True)
    }


def _points(analysis: Analysis, variant: Variant, clocks: Sequence[Wallclock]) -> list[dict[str, object]]:
    """Throughput and time to the target of a variant, measured or modelled on a place."""
    workers = variant.runs[0].setting("workers")
    done = [run.record for run in variant.runs if run.record.state == "done"]
    if workers is None or not done:
        return []
    samples, steps, seconds = (np.array([record.final(name) for record in done]) for name in FINALS)
    with np.errstate(invalid="ignore", divide="ignore"):
        quantities = [(MEASURED, "throughput", float(np.mean(samples / seconds)))]
        a_step = float(np.mean(samples / steps))
    row = next(row for row in analysis.rows if row.variant is variant)
    if row.reached and "seconds" in row.reached.costs:
        quantities.append((MEASURED, "to target", row.reached.costs["seconds"].mean))
    for times in clocks:
        modelled = times.of(variant)
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
