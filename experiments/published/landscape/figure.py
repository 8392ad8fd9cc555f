"""The map as a picture: the reported value against bytes and modelled seconds of a step, the front drawn and named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from commeff.experiments.published.landscape.fronts import FrontPoint
from commeff.experiments.report.data.statistics import estimate
from commeff.experiments.report.draw.figures import COLOURS, INK, NO_DATE, QUIET, STYLE

if TYPE_CHECKING:
    from commeff.experiments.published.landscape.page import TaskMap

SHOWN = 12  # points below the best; what is lower stands at the lower edge
WORSE = 0.5  # of a loss above the best


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
                _panel(axes, each, cost, fronts[name])
                axes.set_xlabel(
                    "bytes on the wire a step, counted" if name == "bytes" else f"seconds a step on {name}, modelled"
                )
            task = each.evidence.task
            row[0].set_ylabel(f"{task.value.replace('_', ' ')}{' (%)' if 'accuracy' in task.value else ''}")
            row[0].set_title(
                f"{task.name}, {task.workers} workers, {task.steps} steps, {len(each.evidence.methods)} methods"
            )
        for path in paths:
            canvas.savefig(path, dpi=110, metadata=NO_DATE if path.suffix == ".pdf" else {"Software": None})
    return paths


def _panel(axes: Axes, each: TaskMap, costs: dict[str, float], points: Sequence[FrontPoint]) -> None:
    percent = each.evidence.task.value.endswith("accuracy")
    scale = 100.0 if percent else 1.0
    means = {name: scale * found.mean for name, values in each.values().items() if (found := estimate(values.values()))}
    best = max(means.values()) if percent else min(means.values())
    edge = best - SHOWN if percent else best + WORSE

    def shown(name: str) -> float:
        return max(means[name], edge) if percent else min(means[name], edge)

    names = [name for name in costs if name in means]
    off = {name for name in names if shown(name) != means[name]}
    for marker, some in (("o", [n for n in names if n not in off]), ("v" if percent else "^", [*off])):
        axes.scatter(
            [costs[n] for n in some], [shown(n) for n in some], s=12, marker=marker, color=QUIET, alpha=0.6, lw=0
        )
    front = [point for point in points if point.method not in off]
    x, y = [point.cost for point in front], [scale * point.value.mean for point in front]
    half = [scale * (point.value.half or 0.0) for point in front]
    axes.errorbar(x, y, half, fmt="none", ecolor=COLOURS[1], lw=0.6, alpha=0.6)
    axes.plot(x, y, drawstyle="steps-post", color=COLOURS[1], lw=1, marker="o", ms=3)
    for number, point in enumerate(front):
        axes.annotate(
            point.method,
            (point.cost, scale * point.value.mean),
            xytext=(2, 3 if number % 2 else -8),
            textcoords="offset points",
            fontsize=6,
            color=INK,
        )
    axes.set_xscale("log")
    axes.set_ylim(*(edge - 0.5, best + 2) if percent else (edge + 0.03, best - 0.1))
