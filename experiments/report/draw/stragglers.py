"""The figure of who waits: simulated seconds to the target, for every straggler that runs had."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.grids import leaves
from commeff.experiments.report.data.quantities import span
from commeff.experiments.report.data.rows import TableRow
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.report.draw.figures import COLOURS, INK, QUIET, Figure, Look, Panel
from commeff.experiments.report.draw.wallclock import NAMES, WIDE, list_names

SECONDS, KEY = "simulated_seconds", "straggler"
BAR = 0.17  # inches


def stragglers(analysis: Analysis) -> Figure | None:
    """A bar for each method and straggler; None where there are not several, or no target."""
    target, families = analysis.target, _families(analysis)
    factors = sorted({_factor(row.variant) for rows in families.values() for row in rows})
    if target is None or len(factors) < 2:
        return None
    data = pd.DataFrame([_bar(name, row) for name, rows in families.items() for row in rows])
    legend = [(_words(factor), Look(COLOURS[i % len(COLOURS)], "", "s")) for i, factor in enumerate(factors)]
    height = 0.75 + (len(factors) + 1) * BAR * len(families)
    draw = partial(_draw, data=data, names=[*families], factors=factors)
    part = Panel("all", draw, WIDE, height, (NAMES, 0.15, 0.45, 0.1))
    counts = [row.reached.of for rows in families.values() for row in rows if row.reached]
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


def _draw(axes: Axes, data: pd.DataFrame, names: Sequence[str], factors: Sequence[float]) -> None:
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


def _families(analysis: Analysis) -> dict[str, list[TableRow]]:
    """Rows that differ in the straggler alone, and in what is tuned, by the shortest of their names."""
    aside, families = {KEY, "seed", *analysis.grid.over}, dict[frozenset[tuple[str, str]], list[TableRow]]()
    for row in analysis.rows:
        run = row.variant.runs[0]
        if run.setting("speeds") is not None and SECONDS in row.variant.curves:
            shared = {key: value for key, value in leaves(run.record.config).items() if key not in aside}
            families.setdefault(frozenset(shared.items()), []).append(row)
    return {min((row.variant.name for row in rows), key=len): rows for rows in families.values()}


def _factor(variant: Variant) -> float:
    return float(variant.runs[0].setting(KEY) or 1.0)
