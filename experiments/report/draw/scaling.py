"""A grid over `workers:`: throughput and time to the target against n, ideal line, measured and modelled apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.report.data.analysis import Analysis, clock
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.report.data.wallclock import Wallclock
from commeff.experiments.report.draw.axes import logarithmic
from commeff.experiments.report.draw.figures import INK, QUIET, Figure, Panel, look

MEASURED = "measured"
UNITS = {"throughput": "samples a second", "to target": "seconds to the target"}


@dataclass(frozen=True)
class VariantPoint:
    """One variant: its family (all but the workers), n, and a quantity, measured or modelled on a place."""

    family: str
    workers: int
    place: str
    quantity: str
    value: float


def scaling(analysis: Analysis, clocks: Sequence[Wallclock]) -> list[Figure]:
    """Panels of throughput and of time to the target, first the measured ones, then those of each cluster, if any."""
    points = [point for variant in analysis.variants for point in _points(analysis, variant, clocks)]
    sizes = {point.workers for point in points}
    if len(sizes) < 2:
        return []
    families = list(dict.fromkeys(point.family for point in points))
    parts, places = [], list(dict.fromkeys(point.place for point in points))
    for place in places:
        for quantity in UNITS:
            own = [point for point in points if (point.place, point.quantity) == (place, quantity)]
            if not own:
                continue
            title = f"{quantity}, {place if place == MEASURED else f'modelled on {place}'}"
            draw = partial(_lines, points=own, families=families, title=title)
            parts.append(Panel(f"{place}-{quantity}".replace(".", "-").replace(" ", "-"), draw))
    words = (
        "Means over seeds. Dashed is the ideal, from the fewest workers of the first variant on: n times the "
        f"throughput, an n-th of the time. {clock(analysis)}"
    )
    words += " Panels that say modelled are not measured." if clocks else ""
    data = pd.DataFrame([vars(point) for point in points])
    legend = [(family, look(i)) for i, family in enumerate(families)]
    return [Figure("scaling", "Against the number of workers", words, parts, 2, data, legend, own_key=True)]


def _points(analysis: Analysis, variant: Variant, clocks: Sequence[Wallclock]) -> list[VariantPoint]:
    workers = variant.runs[0].setting("workers")
    done = [run.record for run in variant.runs if run.record.state == "done"]
    if workers is None or not done:
        return []
    family, n = family_of(variant), int(workers)
    samples, steps, seconds = ([record.final(name) for record in done] for name in ("samples", "steps", "seconds"))
    quantities = [
        (MEASURED, "throughput", _mean(s / t if t > 0 else math.nan for s, t in zip(samples, seconds, strict=True)))
    ]
    row = next(row for row in analysis.rows if row.variant is variant)
    if row.reached and "seconds" in row.reached.costs:
        quantities.append((MEASURED, "to target", row.reached.costs["seconds"].mean))
    for each in clocks:
        modelled = each.of(variant)
        if modelled.timeline is None:
            continue
        rate = _mean(s / k for s, k in zip(samples, steps, strict=True)) / modelled.timeline.step
        quantities.append((each.place.name, "throughput", rate))
        if modelled.to_target:
            quantities.append((each.place.name, "to target", modelled.to_target.mean))
    return [
        VariantPoint(family, n, place, name, value)
        for place, name, value in quantities
        if math.isfinite(value) and value > 0
    ]


def family_of(variant: Variant) -> str:
    """What a variant is called but for its workers."""
    labels = [value for key, value in variant.labels.items() if key != "workers"]
    return " ".join(labels) or variant.runs[0].setting("method") or variant.name


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else math.nan


def _lines(axes: Axes, points: Sequence[VariantPoint], families: Sequence[str], title: str) -> None:
    """A line a family, and the ideal."""
    for i, family in enumerate(families):
        own = sorted((point.workers, point.value) for point in points if point.family == family)
        if own:
            each = look(i)
            x, y = zip(*own, strict=True)
            axes.plot(x, y, color=each.colour, linestyle=each.dash, marker=each.marker, gid=f"group-{i}")
    first = min((point for point in points if point.family == points[0].family), key=lambda point: point.workers)
    sizes = sorted({point.workers for point in points if point.workers >= first.workers})
    power = 1 if points[0].quantity == "throughput" else -1
    ideal = [first.value * (n / first.workers) ** power for n in sizes]
    axes.plot(sizes, ideal, color=QUIET, linestyle=(0, (4, 2)), linewidth=0.9, zorder=1)
    logarithmic(axes, "x")
    logarithmic(axes, "y")
    everything = sorted({point.workers for point in points})
    axes.set_xticks(everything, [str(n) for n in everything])
    modelled = "" if points[0].place == MEASURED else ", modelled"
    axes.set(xlabel="workers", ylabel=f"{UNITS[points[0].quantity]}{modelled}")
    axes.set_title(title, color=INK)
