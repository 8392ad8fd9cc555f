"""The figures of a report: convergence four ways, bytes against quality, consensus, the sweep, the topologies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.escape import file_name
from commeff.experiments.report.data.analysis import Analysis, clock
from commeff.experiments.report.data.names import called, quoted, readable
from commeff.experiments.report.data.quantities import AGREEMENT, quantity, span
from commeff.experiments.report.data.rows import NAMED, WAYS
from commeff.experiments.report.data.statistics import higher_is_better, mean_curve
from commeff.experiments.report.data.variants import Variant, is_number
from commeff.experiments.report.draw import panels
from commeff.experiments.report.draw.axes import AxisLimits
from commeff.experiments.report.draw.figures import LOWER, Figure, Look, Panel, lines_of, look
from commeff.experiments.report.draw.networks import UsedTopology, draw_network
from commeff.experiments.report.draw.panels import Line, Spot
from commeff.experiments.run.store import FINISHED

ROUNDING = 1e-6  # a part of the largest consensus distance that is agreement: models are float32
SAME = 1e-3  # by which ratios of epochs to steps differ that are the same
CROWDED = 20_000  # messages of a step: more are a black disc, and take minutes
SINGLE = " Open markers are of one seed, which has no interval."
SMALL, ROOM = (2.6, 1.9), 1.8  # inches: of a small panel, and of a line of its title


def looks(analysis: Analysis) -> dict[int, Look]:
    """The look of each variant by its number: the baseline in ink, then those that are named; one on all tasks."""
    others = (v.kind for v in analysis.variants if v.kind not in analysis.prominent)
    order = [*dict.fromkeys([*analysis.prominent, *others])]
    styles = {v: look(order.index(v.kind) + (not analysis.baselines)) for v in analysis.variants}
    return {v.number: replace(style, colour=v.colour or style.colour) for v, style in styles.items()}


def figures(analysis: Analysis) -> list[Figure]:
    """All figures that there are measurements for."""
    pictures = [
        convergence(analysis),
        tradeoff(analysis),
        consensus(analysis),
        *(sweep(analysis, key) for key in analysis.grid.over),
    ]
    return [figure for figure in pictures if figure is not None]


def convergence(analysis: Analysis) -> Figure | None:
    """The metric, and the training loss, against steps, epochs, bytes, and seconds, measured and simulated."""
    metrics = dict.fromkeys((shown_metric(analysis), "train_loss"))
    views = [view for view in WAYS if not _says_nothing(analysis, view)]
    drawn = {(view, metric): _few(lines_of_variants(analysis, view, metric)) for view in views for metric in metrics}
    drawn = {place: lines for place, lines in drawn.items() if lines}
    if not drawn:
        return None
    every = [variant for variant in analysis.variants if not variant.curves.empty]
    parts = [
        wide(f"{view}-{metric}", partial(panels.curves, lines=lines, x=view, y=metric))
        for (view, metric), lines in drawn.items()
    ]
    caption = f"{_bands(every)} Bytes are counted, per worker, on a logarithmic scale."
    caption += f" {clock(analysis)}" if "seconds" in views else ""
    limits = [panels.line_limits(lines, metric) for (_, metric), lines in drawn.items()]
    caption += cut_off(limits, [variant.name for variant in every if variant.diverged])
    early = [quoted(v.name) for v in every if any(run.record.state not in FINISHED for run in v.drawn)]
    caption += f" With no run done yet, as far as they have come: {', '.join(early)}." if early else ""
    data = pd.concat([variant.curves.assign(variant=variant.name) for variant in every], ignore_index=True)
    width = len({metric for _, metric in drawn})
    return Figure("convergence", "Convergence", caption + unnamed(analysis), parts, width, data)


def _says_nothing(analysis: Analysis, view: str) -> bool:
    """Whether a view says nothing: epochs that are steps in another unit, seconds of workers that take turns."""
    if view == "seconds":
        return all(run.processes == 1 for run in analysis.runs)
    if view != "epoch":
        return False
    curves = [variant.curves for variant in analysis.variants if {"step", "epoch"} <= {*variant.curves}]
    ratios = [ratio for curve in curves for ratio in (curve["epoch"] / curve["step"])[curve["step"] > 0]]
    return bool(ratios) and max(ratios) <= (1 + SAME) * min(ratios)


def tradeoff(analysis: Analysis) -> Figure | None:
    """The final metric against the bytes on the wire, with the Pareto front."""
    metric, styles, scale = analysis.metric, looks(analysis), quantity("wire_bytes").scale
    silent, spots, rows = [], [], []
    for row in analysis.rows:
        v, sent, final = row.variant, row.finals.get("wire_bytes"), row.finals.get(metric)
        if sent and final and sent.mean > 0:
            named = v.kind in analysis.prominent
            spots.append(Spot(v.kind, v.name, styles[v.number], sent.mean * scale, final, named))
            rows.append((v.name, sent.mean, final.mean, final.half, final.n))
        elif sent and final:
            silent.append(v.name)
    if not spots:
        return None
    data = pd.DataFrame(rows, columns=["variant", "wire_bytes", metric, "interval", "n"])
    dense = analysis.half_dense.get("wire_bytes")
    reference = None if dense is None else dense * scale
    caption = (
        f"Final {quantity(metric).words} against all that a worker sends over the run, counted, on a logarithmic "
        f"scale. Bars are 95 % intervals over seeds (Student's t, n = {span(data['n'])}), cut where they leave the "
        "figure. The line is the Pareto front: no variant has a better mean with fewer bytes."
    )
    caption += SINGLE * any(spot.final.half is None for spot in spots)
    if not all(spot.named for spot in spots):
        caption += " Named are those on it and the ones in colour; the table has the others."
    caption += f" Not shown, since nothing was sent: {', '.join(map(quoted, silent))}." if silent else ""
    caption += cut_off([panels.spot_limits(spots, metric)])
    draw = partial(panels.tradeoff, spots=spots, metric=metric, reference=reference)
    part = Panel("all", draw, 7.6, 4.0 + 0.12 * max(0, len(spots) - NAMED), (0.65, 0.15, 0.45, 0.15))
    return Figure("pareto", "Quality against bytes", caption, [part], 1, data)


def consensus(analysis: Analysis) -> Figure | None:
    """How far the workers' models are apart."""
    lines = lines_of_variants(analysis, "step", "consensus_distance")
    disagreeing = [line for line in lines if (line.means["high"] > AGREEMENT).any()]
    if not disagreeing:
        return None
    caption = f"How far the workers' models are from their mean. {_bands(analysis.variants)}"
    names = ", ".join(quoted(line.name) for line in lines if line not in disagreeing)
    caption += f" In agreement whenever it was evaluated, so not drawn: {names}." if names else ""
    data, largest = _data(disagreeing), max(float(line.means["y"].max()) for line in panels.sound(disagreeing))
    disagreeing = [replace(line, means=line.means.mask(line.means["y"] < largest * ROUNDING)) for line in disagreeing]
    disagreeing = _few([line for line in disagreeing if line.means["y"].notna().any()])
    caption += " Gaps are where it is below a millionth of the largest, which is agreement up to rounding."
    limits = panels.line_limits(disagreeing, "consensus_distance")
    caption += cut_off([limits], [line.name for line in disagreeing if line.diverged])
    caption += unnamed(analysis) * (len(disagreeing) > NAMED)
    part = wide("step", partial(panels.curves, lines=disagreeing, x="step", y="consensus_distance"), 7.6, 3.0)
    return Figure("consensus", "Consensus distance", caption, [part], 1, data)


def sweep(analysis: Analysis, key: str) -> Figure | None:
    """The metric that chooses against a tuned number, the other tuned keys at their chosen values."""
    by, styles = analysis.by, looks(analysis)
    tried = [
        (variant, Line(variant.kind, variant.name, styles[variant.number], points))
        for variant in analysis.variants
        if (points := _slice(variant, key, by))[key].nunique() > 1
    ]
    if not tried:
        return None
    every = pd.concat([line.means.assign(variant=line.name) for _, line in tried])
    limits = _limits(every[by], by)
    parts = [
        _small(
            str(line.number),
            partial(panels.swept, line=line, chosen=float(variant.chosen.values[key]), key=key, by=by, limits=limits),
            [other.name for _, other in tried],
        )
        for variant, line in tried
    ]
    others = [other for other in analysis.grid.over if other != key]
    caption = (
        f"Final {quantity(by).words} for each value of the {called(key)} that was tried; dots are seeds, the line "
        "their mean, the ring the value chosen. Runs that diverged have none; losses that are far off are drawn at the "
        "edge."
    )
    caption += f" {', '.join(map(called, others))} at the chosen value." if others else ""
    name = f"sweep_{file_name(key)}"
    return Figure(name, f"Sensitivity to {called(key)}", caption, parts, min(4, len(parts)), every, small=True)


def drawings(networks: Sequence[UsedTopology]) -> list[Figure]:
    """The topologies on a circle, if there are any."""
    crowded = [network.name for network in networks if network.messages > CROWDED]
    networks = [network for network in networks if network.messages <= CROWDED]
    if not networks:
        return []
    parts, rows = [], []
    names = [readable(network.name) for network in networks]
    above = LOWER * (lines_of(names, ROOM) - 1)
    for i, network in enumerate(networks):
        first, later = network.edges()
        draw = partial(draw_network, name=names[i], n=network.topology.n, first=first, later=later)
        parts.append(Panel(str(i), draw, 2.2, 2.3 + above, (0.1, 0.1, 0.05, 0.25 + above)))
        rows += [(network.name, *pair, when) for when, pairs in (("first", first), ("later", later)) for pair in pairs]
    caption = (
        "Workers on a circle; a line is a message. Where the graph changes, the first step is dark and the others are "
        "pale."
    )
    caption += f" Not drawn, with more than {CROWDED:,} messages a step: {', '.join(crowded)}." if crowded else ""
    data = pd.DataFrame(rows, columns=["topology", "sender", "receiver", "step"])
    return [Figure("topologies", "Topologies", caption, parts, min(4, len(parts)), data, small=True)]


def _small(name: str, draw: Callable[[Axes], None], titles: Sequence[str]) -> Panel:
    """A small panel, with room above for the longest of all titles."""
    above = LOWER * (lines_of(titles, ROOM) - 1)
    return Panel(name, draw, SMALL[0], SMALL[1] + above, (0.72, 0.08, 0.38, 0.22 + above))


def wide(name: str, draw: Callable[[Axes], None], width: float = 5.5, height: float = 2.75) -> Panel:
    """A panel with room for the names of lines at their ends."""
    return Panel(name, draw, width, height, (0.58, 0.2 + panels.ENDS, 0.42, 0.27))


def unnamed(analysis: Analysis) -> str:
    """What a caption says of the lines that have no name."""
    if len({variant.kind for variant in analysis.variants}) <= NAMED:
        return ""
    base = "the baseline and " * bool(analysis.baselines)
    return (
        f" Named are {base}the best by final {quantity(analysis.metric).words} of each method, at most {NAMED}, those "
        "run as the baseline was before others; the other variants are grey."
    )


def _bands(variants: Sequence[Variant]) -> str:
    """What lines and bands are, and over how many seeds."""
    counts = [len(variant.drawn) for variant in variants if variant.drawn]
    lines = f"Lines are means over seeds (n = {span(counts)}), bands 95 % intervals (Student's t)"
    return f"{lines}, on a logarithmic axis those of logarithms." + SINGLE * (min(counts) == 1)


def shown_metric(analysis: Analysis) -> str:
    """The metric, or if it is only known at the end (a test) what was measured on the way."""
    ways = (analysis.metric, "val_accuracy", "val_loss")
    return next((name for name in ways if analysis.measured(name)), analysis.metric)


def lines_of_variants(
    analysis: Analysis, x: str, y: str, curves_of: Callable[[Variant], pd.DataFrame] = lambda variant: variant.curves
) -> list[Line]:
    """The variants whose curves have both, by logarithm where their axis is logarithmic."""
    styles, curves = looks(analysis), {variant: curves_of(variant) for variant in analysis.variants}

    def lines(log: bool) -> list[Line]:
        drawn = []
        for v, curve in ((v, curve) for v, curve in curves.items() if {x, y} <= {*curve}):
            means = mean_curve(curve, x, y, log and bool((curve[y].dropna() > 0).all()))
            means = means[means["x"] > 0] if x in panels.LOGARITHMIC else means
            named = v.kind in analysis.prominent
            drawn.append(Line(v.kind, v.name, styles[v.number], means, v.diverged, named))
        return [line for line in drawn if not line.means.empty]

    linear = lines(False)
    return lines(True) if linear and panels.line_limits(linear, y).logarithm else linear


def _few(lines: Sequence[Line]) -> list[Line]:
    """Lines that all have names, if they are few enough for it."""
    return [replace(line, named=line.named or len(lines) <= NAMED) for line in lines]


def cut_off(limits: Iterable[AxisLimits], diverged: Sequence[str] = ()) -> str:
    """What a caption says of broken axes, and of variants all of whose runs diverged.

    >>> cut_off([], ["dsgd", "d2"]), cut_off([])
    (' Diverged, and cut where they leave the panels: dsgd, d2.', '')
    """
    words = " Beyond dashed lines, on grey, an axis is pressed together: a few variants lie far from all others."
    words *= any(axis.broken for axis in limits)
    gone = ", ".join(map(quoted, diverged))
    return words + (f" Diverged, and cut where they leave the panels: {gone}." if gone else "")


def _data(lines: Sequence[Line]) -> pd.DataFrame:
    return pd.concat([line.means.assign(variant=line.name) for line in lines], ignore_index=True)


def _slice(variant: Variant, key: str, by: str) -> pd.DataFrame:
    """Seeds and finals of the trials that differ from the chosen one in `key` alone."""
    chosen = variant.chosen.values
    rows = [
        {key: float(trial.values[key]), "seed": seed, by: value}
        for trial in variant.trials
        if is_number(trial.values.get(key))
        and all(trial.values.get(other) == value for other, value in chosen.items() if other != key)
        for seed, value in trial.finals(by).items()
    ]
    return pd.DataFrame(rows, columns=[key, "seed", by])


def _limits(values: pd.Series, by: str) -> tuple[float, float]:
    """What a sweep's panels show: all of it, but for losses that are far off (those are drawn at the edge)."""
    low, high = float(values.min()), float(values.max())
    return (low, high) if higher_is_better(by) else (low, min(high, max(float(values.median()) * 3, low * 10)))
