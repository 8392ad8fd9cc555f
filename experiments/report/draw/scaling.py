"""A grid over `workers:`: throughput and time to the target against n, ideal line, measured and modelled apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.report.data.analysis import Analysis, clock
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.report.data.wallclock import Wallclock
from commeff.experiments.report.draw.axes import logarithmic
from commeff.experiments.report.draw.figures import INK, QUIET, Figure, Panel, look

MEASURED = "measured"
FINALS = ("samples", "steps", "seconds")
UNITS = {"throughput": "samples a second", "to target": "seconds to the target"}


def scaling(analysis: Analysis, clocks: Sequence[Wallclock]) -> Figure | None:
    """Panels of throughput and of time to the target, first the measured ones, then those of each cluster, if any."""
    data = pd.DataFrame([point for variant in analysis.variants for point in _points(analysis, variant, clocks)])
    if data.empty or data["workers"].nunique() < 2:
        return None
    families, parts = [*dict.fromkeys(data["family"])], []
    for place in dict.fromkeys(data["place"]):
        for quantity in UNITS:
            own = data[(data["place"] == place) & (data["quantity"] == quantity)]
            if own.empty:
                continue
            title = f"{quantity}, {place if place == MEASURED else f'modelled on {place}'}"
            draw = partial(_lines, points=own, families=families, title=title)
            parts.append(Panel(f"{place}-{quantity}".replace(".", "-").replace(" ", "-"), draw))
    words = (
        "Means over seeds. Dashed is the ideal, from the fewest workers of the first variant on: n times the "
        f"throughput, an n-th of the time. {clock(analysis)}"
    )
    words += " Panels that say modelled are not measured." if clocks else ""
    legend = [(family, look(i)) for i, family in enumerate(families)]
    return Figure("scaling", "Against the number of workers", words, parts, 2, data, legend, own_key=True)


def _points(analysis: Analysis, variant: Variant, clocks: Sequence[Wallclock]) -> list[dict[str, object]]:
    """What is known of a variant, measured or modelled on a place; its family is its name but for the workers."""
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
    for each in clocks:
        modelled = each.of(variant)
        if modelled.timeline is None:
            continue
        quantities.append((each.place.name, "throughput", a_step / modelled.timeline.step))
        if modelled.to_target:
            quantities.append((each.place.name, "to target", modelled.to_target.mean))
    return [
        {"family": family_of(variant), "workers": int(workers), "place": place, "quantity": name, "value": value}
        for place, name, value in quantities
        if math.isfinite(value) and value > 0
    ]


def family_of(variant: Variant) -> str:
    """What a variant is called but for its workers."""
    labels = [value for key, value in variant.labels.items() if key != "workers"]
    return " ".join(labels) or variant.runs[0].setting("method") or variant.name


def _lines(axes: Axes, points: pd.DataFrame, families: Sequence[str], title: str) -> None:
    """A line a family, and the ideal."""
    for i, family in enumerate(families):
        own = points[points["family"] == family].sort_values(["workers", "value"])
        if not own.empty:
            each = look(i)
            gid = f"group-{i}"
            axes.plot(own["workers"], own["value"], color=each.colour, linestyle=each.dash, marker=each.marker, gid=gid)
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
