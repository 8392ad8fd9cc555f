"""The map as a picture: the reported value against bytes and modelled seconds of a step, the front drawn and named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullFormatter

from commeff.experiments.published.landscape.fronts import FrontPoint
from commeff.experiments.report.data.statistics import estimate
from commeff.experiments.report.draw.figures import COLOURS, INK, NO_DATE, QUIET, STYLE

if TYPE_CHECKING:
    from commeff.experiments.published.landscape.page import TaskMap

LOWEST = 0.15  # of the methods lie below what is shown, at the lower edge


def draw(maps: Sequence[TaskMap], out: Path) -> list[Path]:
    """landscape.png and landscape.pdf: a row a task, a column a cost."""
    paths = [out / f"landscape.{ending}" for ending in ("png", "pdf")]
    with mpl.rc_context(STYLE):
        costs = [name for name, _ in maps[0].costs()]
        canvas = Canvas(figsize=(3.1 * len(costs), 2.9 * len(maps)), layout="constrained")
        grid = canvas.subplots(len(maps), len(costs), squeeze=False, sharey="row")
        for row, each in zip(grid, maps, strict=True):
            fronts = each.fronts()
            for axes, (name, cost) in zip(row, each.costs(), strict=True):
                _panel(axes, each, cost, fronts[name], 1.0 if name == "bytes" else 1e3)
                axes.set_xlabel(
                    "bytes on the wire a step, counted" if name == "bytes" else f"ms a step on {name}, modelled"
                )
            task = each.evidence.task
            row[0].set_ylabel(f"{task.value.replace('_', ' ')}{' (%)' if 'accuracy' in task.value else ''}")
            row[0].set_title(
                f"{task.name}, {task.workers} workers, {task.steps} steps, {len(each.evidence.methods)} methods"
            )
        for path in paths:
            canvas.savefig(path, dpi=110, metadata=NO_DATE if path.suffix == ".pdf" else {"Software": None})
    return paths


def _panel(axes: Axes, each: TaskMap, costs: dict[str, float], points: Sequence[FrontPoint], unit: float) -> None:
    costs = {name: unit * cost for name, cost in costs.items()}
    percent = each.evidence.task.value.endswith("accuracy")
    scale, sign = (100.0, 1.0) if percent else (1.0, -1.0)
    means = {name: scale * found.mean for name, values in each.values().items() if (found := estimate(values.values()))}
    ordered = sorted(sign * mean for mean in means.values())
    edge, best = sign * ordered[int(LOWEST * len(ordered))], sign * ordered[-1]
    names = [name for name in costs if name in means]
    off = [name for name in names if sign * means[name] < sign * edge]
    for marker, some in (("o", [name for name in names if name not in off]), ("v" if percent else "^", off)):
        heights = [edge if name in off else means[name] for name in some]
        axes.scatter([costs[name] for name in some], heights, s=12, marker=marker, color=QUIET, alpha=0.6, lw=0)
    front = [(number, point) for number, point in enumerate(points, 1) if point.method not in off]
    x, y = [unit * point.cost for _, point in front], [scale * point.value.mean for _, point in front]
    axes.errorbar(x, y, [scale * (p.value.half or 0.0) for _, p in front], fmt="none", ecolor=COLOURS[1], lw=0.6)
    axes.plot(x, y, drawstyle="steps-post", color=COLOURS[1], lw=1, marker="o", ms=3)
    for number, point in front:
        place = (unit * point.cost, scale * point.value.mean)
        axes.annotate(f"{number}", place, xytext=(-6, 3), textcoords="offset points", fontsize=6.5, color=INK)
    listed = "\n".join(f"{number} {point.method}" for number, point in enumerate(points, 1))
    box = {"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 1}
    axes.text(0.98, 0.04, listed, transform=axes.transAxes, ha="right", va="bottom", fontsize=6, color=INK, bbox=box)
    room = max(abs(best - edge), 1e-6)
    axes.set_ylim(edge - sign * 0.15 * room, best + sign * 0.25 * room)
    axes.set_xscale("log")
    low, high = 0.8 * min(costs.values()), 1.25 * max(costs.values())
    axes.set_xlim(low, high)
    ticks = _ticks(low, high)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(ticks, [f"{tick:,.10g}" for tick in ticks])


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers along a logarithmic axis, five at most.

    >>> _ticks(0.00023, 0.0021), _ticks(100, 300000)
    ([0.0005, 0.001, 0.002], [100.0, 1000.0, 10000.0, 100000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [tick for k in decades for digit in digits if low <= (tick := float(f"{digit}e{k}")) <= high]
        if len(found) <= 5:
            return found
    return found[:: -(-len(found) // 5)]
