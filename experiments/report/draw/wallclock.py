"""Figures of modelled wall-clock: speed-ups, convergence against modelled seconds, where the time of a step goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from commeff.cluster.modelled import Modelled
from commeff.experiments.config.schema import over_mesh
from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.names import called, quoted
from commeff.experiments.report.data.quantities import span
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.report.data.wallclock import Wallclock
from commeff.experiments.report.draw import panels
from commeff.experiments.report.draw.axes import AxisLimits, fit, limits, logarithmic
from commeff.experiments.report.draw.figures import (
    COLOURS,
    INK,
    LOWER,
    MARKERS,
    QUIET,
    RULE,
    Figure,
    Look,
    Panel,
    folded,
    lines_of,
)
from commeff.experiments.report.draw.plots import (
    SINGLE,
    cut_off,
    lines_of_variants,
    shown_metric,
    unnamed,
    wide,
)

KINDS = (
    *("all_reduce", "all_gather", "mix", "to_server", "from_server", "ring", "tree", "server", "coding"),
    *("tensor", "pipeline", "data", "workers", "bubble", "offload"),  # of runs over a mesh
)
WIDE, ROW = 7.6, 0.27  # inches: of a figure, and of a variant in it
NAMES, LETTERS = 1.9, 1.8  # inches for the variants' names, and of those for letters


def speed_up(analysis: Analysis, clocks: Sequence[Wallclock]) -> Figure | None:
    """How many times as fast as the baseline each variant is at the target, on each cluster."""
    rows = [(clock.place.name, variant.name, clock.of(variant)) for clock in clocks for variant in analysis.variants]
    target, base = analysis.target, analysis.baselines[0].name if analysis.baselines else ""
    if not any(row.speed_up for *_, row in rows) or target is None:
        return None
    places = [clock.place.name for clock in clocks]
    data = pd.DataFrame(
        {"cluster": place, "variant": variant, "baseline": base, "modelled_speed_up": ratio.mean}
        | dict(zip(("low", "high"), ratio.ends if ratio.half is not None else (None, None), strict=True))
        | {"n": ratio.n, "loses": row.loses}
        for place, variant, row in rows
        if (ratio := row.speed_up)
    )
    known = set(data["variant"])
    short = {name: row.short for _, name, row in rows if row.short and not row.reason and name not in known}
    names = [variant.name for variant in analysis.variants if variant.name in known | {*short}]
    numbers = {variant.name: variant.kind for variant in analysis.variants}
    draw = partial(_speed_ups, data=data, names=names, places=places, base=base, numbers=numbers, short=short)
    caption = (
        f"Modelled, not measured: how many times as fast as {base} a method reaches {target.words} on each "
        f"cluster. Geometric means over seeds (n = {span(data['n'])}), bars 95 % intervals of the ratios paired by "
        f"seed, cut where they leave the figure.{' None where a seed never reaches it.' * bool(short)}"
        f"{SINGLE * bool(data['low'].isna().any())} {assumptions(analysis, clocks)}"
    )
    row = max(_row(names), ROW * len(places) / 3)
    part = Panel("all", draw, WIDE, 0.75 + row * len(names), (NAMES, 0.15, 0.45, 0.1))
    legend = [(called(place), _look(i)) for i, place in enumerate(places)]
    title = f"Modelled speed-up over {base} to {target.words}"
    return Figure("speed_up", title, caption, [part], 1, data, legend)


def assumptions(analysis: Analysis, clocks: Sequence[Wallclock]) -> str:
    """What modelled seconds are made of, for captions and notes."""
    computing = [f"{clock.place.name} {_computing(clock)}" for clock in clocks]
    words = {text.partition(" ")[2] for text in computing}
    pace = f"computing takes {words.pop()}" if len(words) == 1 else f"computing takes on {'; '.join(computing)}"
    shares = [f"{clock.place.name} {clock.latency_share:.0%}" for clock in clocks if clock.latency_share is not None]
    base = analysis.baselines[0].name if analysis.baselines else ""
    over = any(row.timelines and over_mesh(row.config) for clock in clocks for row in clock.rows.values())
    mesh = " Runs over a mesh instead take the steps that `commeff plan` predicts of their own mesh." * over
    latency = (
        f" Of the communication of {base}, latency is: {', '.join(shares)}; the rest is bandwidth." if shares else ""
    )
    return (
        f"Assumed: {pace}; communication takes what its profile costs on the described links, less what computing "
        "hides; compressing takes what was measured or is estimated; all workers are equally fast, one a GPU."
        f"{mesh}{latency}"
    )


def _computing(clock: Wallclock) -> str:
    place, gpu = clock.place, clock.place.cluster.gpu
    if place.step_seconds is not None:
        return f"{1e3 * place.step_seconds:.3g} ms a minibatch (given)"
    share = f"{place.efficiency:.0%} of the peak of a {gpu.name}"
    if clock.work is None:
        return f"the FLOPs of each run's model at {share}"
    milliseconds = clock.work.seconds(gpu) / place.efficiency * 1e3
    return f"{milliseconds:.3g} ms a minibatch ({clock.work.flops / 1e6:.3g} MFLOP at {share})"


def _row(names: Sequence[str]) -> float:
    """Inches of a variant: of a line at least, and of all that the longest name takes."""
    return max(ROW, 0.05 + LOWER * lines_of(names, LETTERS))


def _look(position: int) -> Look:
    return Look(COLOURS[position % len(COLOURS)], "", MARKERS[position % len(MARKERS)])


def _speed_ups(
    axes: Axes,
    data: pd.DataFrame,
    names: Sequence[str],
    places: Sequence[str],
    base: str,
    numbers: dict[str, int],
    short: dict[str, str],
) -> None:
    """Variants below each other, on each line a marker for each cluster, on a logarithmic scale."""
    axes.axvline(1.0, color=QUIET, linewidth=0.9, zorder=1)
    for name, words in short.items():
        axes.text(0.02, names.index(name), words, transform=axes.get_yaxis_transform(), color=QUIET, va="center")
    for row in data.itertuples():
        i = places.index(row.cluster)
        y = names.index(row.variant) + 0.6 * ((i + 0.5) / len(places) - 0.5)
        look, whole = _look(i), pd.notna(row.low)
        ink: dict[str, Any] = {"color": look.colour, "gid": f"variant-{numbers[row.variant]}-group-{i}"}
        if whole:
            axes.plot([row.low, row.high], [y, y], linewidth=1.0, alpha=0.5, **ink)
        marker: Any = {"marker": look.marker, "fillstyle": "full" if whole else "none"}
        axes.plot(row.modelled_speed_up, y, **marker, markersize=5, zorder=3, **ink)
    list_names(axes, names)
    axes.set_xlabel(f"times as fast as {base}, modelled")
    means = data["modelled_speed_up"]  # wide intervals of few seeds do not decide the scale
    axes.set_xlim(min(1.0, means.min()) / 1.6, max(1.0, means.max()) * 1.6)
    logarithmic(axes, "x")


def list_names(axes: Axes, names: Sequence[str]) -> None:
    """Names below each other to the left of the axes, a line each."""
    axes.set(ylim=(len(names) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), [folded(name, LETTERS) for name in names])
    axes.grid(axis="y", visible=False)


def modelled_convergence(analysis: Analysis, clocks: Sequence[Wallclock]) -> Figure | None:
    """The metric against modelled seconds, a panel for each cluster."""
    metric, parts, frames, shown = shown_metric(analysis), [], [], []
    for clock in clocks:
        lines = lines_of_variants(analysis, "modelled_seconds", metric, partial(_curves, clock))
        if not lines:
            continue
        name = clock.place.name
        shown.append(panels.line_limits(lines, metric))
        draw = partial(panels.curves, lines=lines, x="modelled_seconds", y=metric, place=called(name))
        parts.append(wide(name.replace(".", "-"), draw))
        frames += [line.means.assign(variant=line.name, cluster=name) for line in lines]
    if not parts:
        return None
    reasons = {variant: clocks[0].of(variant).reason for variant in analysis.variants}
    absent = [quoted(variant.name) for variant, reason in reasons.items() if reason]
    caption = (
        "Lines are means over seeds, bands 95 % intervals (Student's t; of logarithms where the metric's axis is "
        f"logarithmic), against modelled seconds on a logarithmic scale: nothing here was measured in time. "
        f"{assumptions(analysis, clocks)}"
    )
    diverged = [variant.name for variant, reason in reasons.items() if variant.diverged and not reason]
    caption += cut_off(shown, diverged)
    caption += f" Not modelled, see the table: {', '.join(absent)}." if absent else ""
    data = pd.concat(frames, ignore_index=True).rename(columns={"x": "modelled_seconds", "y": metric})
    caption += unnamed(analysis)
    return Figure("modelled_convergence", "Against modelled seconds", caption, parts, min(2, len(parts)), data)


def _curves(clock: Wallclock, variant: Variant) -> pd.DataFrame:
    """The evaluations of the drawn runs that are modelled."""
    timelines = clock.of(variant).timelines
    frames = [
        run.record.curve.assign(
            run=run.cell.run,
            modelled_seconds=[timelines[run.cell.run].seconds(int(step)) for step in run.record.curve["step"]],
        )
        for run in variant.drawn
        if run.cell.run in timelines
    ]
    return pd.concat(frames) if frames else pd.DataFrame()


def step_time(analysis: Analysis, clocks: Sequence[Wallclock]) -> Figure | None:
    """Stacked bars: what a step computes, what communication computing hides, and what it does not."""
    rows = [
        {"cluster": clock.place.name, "variant": variant.name, "part": part, "kind": kind, "seconds": seconds}
        for clock in clocks
        for variant in analysis.variants
        if (timeline := clock.of(variant).timeline)
        for part, kind, seconds in _parts(timeline)
    ]
    if not rows:
        return None
    data = pd.DataFrame(rows)
    names = list(dict.fromkeys(data["variant"]))
    kinds = [kind for kind in KINDS if kind in set(data["kind"])]
    height, parts, shown = 0.75 + _row(names) * len(names), [], []
    for place, bars in data.groupby("cluster", sort=False):
        draw = partial(_bars, data=bars, names=names, title=str(place), kinds=kinds)
        parts.append(Panel(str(place).replace(".", "-"), draw, 4.7, height, (NAMES, 0.12, 0.42, 0.27)))
        shown.append(bar_limits(bars))
    caption = (
        "Modelled: the mean step of a run. Grey is computing, hatched the communication that it hides, colours what is "
        f"left exposed, by kind of operation. {assumptions(analysis, clocks)}"
    )
    caption += cut_off(shown)
    legend = [("computing", Look(RULE, "-", "s")), *((called(kind), Look(_colour(kind), "-", "s")) for kind in kinds)]
    return Figure("step_time", "Where a step's time goes", caption, parts, min(2, len(parts)), data, legend)


def _parts(timeline: Modelled) -> list[tuple[str, str, float]]:
    parts = [("computing", "", timeline.compute)]
    parts += [("hidden", kind, seconds) for kind, seconds in timeline.hidden_by_kind.items() if seconds > 0]
    return parts + [("exposed", kind, seconds) for kind, seconds in timeline.exposed_by_kind.items() if seconds > 0]


def bar_limits(data: pd.DataFrame) -> AxisLimits:
    """From nothing to the longest bar, in milliseconds; broken where a few are much longer than the others."""
    ends = 1e3 * data[data["part"] != "hidden"].groupby("variant")["seconds"].sum()
    return limits([(0.0, float(end)) for end in ends], (0.0, math.inf), logarithm=False)


def _colour(kind: str) -> str:
    return COLOURS[KINDS.index(kind) % len(COLOURS)] if kind in KINDS else INK


def _bars(axes: Axes, data: pd.DataFrame, names: Sequence[str], title: str, kinds: Sequence[str]) -> None:
    """One bar a variant: computing with what it hides, then what is exposed, in milliseconds."""
    groups = {kind: f"group-{i}" for i, kind in enumerate(kinds, 1)}
    for y, name in enumerate(names):
        parts = data[data["variant"] == name]
        if parts.empty:
            continue
        compute = 1e3 * float(parts[parts["part"] == "computing"]["seconds"].iloc[0])
        axes.barh(y, compute, color=RULE, height=0.72, zorder=2, gid="group-0")
        right = compute
        for row in parts[parts["part"] == "exposed"].itertuples():
            colour, gid = _colour(row.kind), groups[row.kind]
            axes.barh(y, 1e3 * row.seconds, left=right, color=colour, height=0.72, zorder=2, gid=gid)
            right += 1e3 * row.seconds
        right = compute
        for row in parts[parts["part"] == "hidden"].itertuples():
            width = 1e3 * row.seconds
            (bar,) = axes.barh(y, width, left=right - width, height=0.72, zorder=3, facecolor="none", linewidth=0)
            bar.set(edgecolor=_colour(row.kind), hatch="////", gid=groups[row.kind])
            right -= width
    list_names(axes, names)
    axes.set_xlabel("milliseconds a step, modelled")
    axes.set_title(called(title), color=INK)
    fit(axes, "x", bar_limits(data))
