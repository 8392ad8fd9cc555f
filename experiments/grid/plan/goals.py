"""What the runs of a grid measure on their way: a target or a choice by anything else is refused before they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.spec import Grid
from commeff.experiments.tasks import Language, Quadratic, Supervised

ALWAYS = ("minibatch_loss", "consensus_distance", "epoch", "seconds", "samples", "payload_bytes", "wire_bytes")
MEASURES = {  # by what evaluates: a plug-in's task that inherits it measures the same
    Supervised.evaluate: ("train_loss", "val_loss", "val_accuracy"),
    Language.evaluate: ("train_loss", "val_loss", "val_accuracy"),
    Quadratic.evaluate: ("train_loss", "val_loss", "distance"),
}


def measured(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What stands in every row of a run's measurements; None where a plug-in evaluates, which may measure anything.

    >>> measured({"task": {"_target_": "commeff.experiments.tasks.Quadratic"}})[:3]
    ('train_loss', 'val_loss', 'distance')
    """
    evaluate: Any = getattr(locate(config["task"]["_target_"]), "evaluate", None)
    names = MEASURES.get(evaluate)
    return None if names is None else (*names, *ALWAYS)


def unmeasured(grid: Grid, cells: Sequence[Cell]) -> list[str]:
    """A line for each measurement that the grid counts to or chooses by, and no run of it has."""
    each = [measured(cell.config) for cell in cells]
    if not each or None in each:
        return []
    names = dict.fromkeys(name for run in each for name in run or ())
    asked = [*(("target", name) for name in grid.target or ()), *(("select.by", s["by"]) for s in [grid.select] if s)]
    return [
        f"{part}: no run of the grid measures {name}{did_you_mean(name, names)}; they measure {', '.join(names)}"
        for part, name in asked
        if name not in names
    ]
