"""What the runs of a grid measure on their way: a target or a choice by anything else is refused before they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import built_in, did_you_mean, node
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.spec import Grid

ALWAYS = ("minibatch_loss", "consensus_distance", "epoch", "seconds", "samples", "payload_bytes", "wire_bytes")
CLASSES = ("train_loss", "val_loss", "val_accuracy")
OTHERS = {"quadratic": ("train_loss", "val_loss", "distance")}  # built-in tasks that measure other things


def measured(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What stands in every row of a run's measurements; None where a plug-in evaluates, which may measure anything.

    >>> measured({"task": {"_target_": "commeff.experiments.tasks.Quadratic"}})[:3]
    ('train_loss', 'val_loss', 'distance')
    """
    from commeff.experiments.tasks import Supervised  # with torch, which a mistake should not wait for

    kind: Any = locate(config["task"]["_target_"])
    for task in built_in("task"):
        ours: Any = locate(node("task", task)["_target_"])
        if all(getattr(kind, part, None) is getattr(ours, part, None) for part in ("evaluate", "measures")):
            classes = getattr(kind, "hits", None) is not Supervised.hits
            return tuple(name for name in _names(task) if classes or name != "val_accuracy")
    return None


def _names(task: str) -> tuple[str, ...]:
    return (*OTHERS.get(task, CLASSES), *ALWAYS)


def unmeasured(grid: Grid, cells: Sequence[Cell]) -> list[str]:
    """A line for each measurement that the grid counts to or chooses by, and no run of it has."""
    each = [measured(cell.config) for cell in cells]
    return [] if not each or None in each else _lines(grid, [names for names in each if names])


def unmeasured_by_name(grid: Grid) -> list[str]:
    """The same as far as the names of tasks say it, without importing any."""
    tasks = {point.settings.get("task") for point in grid.points}
    return _lines(grid, [_names(str(task)) for task in tasks]) if tasks <= {*built_in("task")} else []


def _lines(grid: Grid, each: Sequence[tuple[str, ...]]) -> list[str]:
    names = dict.fromkeys(name for run in each for name in run)
    asked = [*(("target", name) for name in grid.target or ()), *(("select.by", s["by"]) for s in [grid.select] if s)]
    return [
        f"{part}: no run of the grid measures {name}{did_you_mean(name, names)}; they measure {', '.join(names)}"
        for part, name in asked
        if name not in names
    ]
