"""From a grid file's combinations to its cells: each is composed, named by what decides its result, and rehearsed.

What cannot be composed or does not fit is refused, and so is a target or a choice by what no run of the grid measures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.registry import locate
from commeff.experiments.config.schema import ConfigError, built_in, node
from commeff.experiments.grid.plan.cells import Cell, Fault, distinguishing_labels, fault_lines
from commeff.experiments.grid.plan.spec import STEPS_TO_TARGET, Grid, Settings, words_of
from commeff.experiments.run.naming import run_id
from commeff.require import did_you_mean

if TYPE_CHECKING:
    from commeff.training.task import Task

ALWAYS = ("minibatch_loss", "consensus_distance", "epoch", "seconds", "samples", "payload_bytes", "wire_bytes")
CLASSES = ("train_loss", "val_loss", "val_accuracy")
OTHERS = {  # built-in tasks that measure other things
    "logistic": (*CLASSES, "suboptimality", "gradient"),
    "least_squares": ("train_loss", "val_loss", "distance", "relative"),
    "quadratic": ("train_loss", "val_loss", "distance"),
    "risk": ("train_loss", "val_loss", "gradient"),
}
BUILT = ("method", "compressor", "topology", "schedule", "workers", "collective", "bucket_mb", "engine")
MESH = ("mesh", "micro_batches", "recompute", "zero", "sequence", "pieces")


def expand(grid: Grid, store: Path, plugins: Sequence[Choice] = ()) -> tuple[list[Cell], list[str]]:
    """Compose the cells of a grid, seed after seed. A cell that two products share counts once.

    Parameters
    ----------
    grid : as `read_grid` gives it.
    store : the folder of runs.
    plugins : choices beside the built-in ones.

    Returns
    -------
    cells, faults : the cells that can be composed, and a line for each reason why others cannot.
    """
    refusals, cells = list[Fault](), dict[str, Cell]()
    labels = _labels([point.settings for point in grid.points])
    for number, settings, name, config in _composed(grid, plugins, refusals):
        run = run_id(config)
        cell_labels = {key: settings.get(key, "") for key in labels}
        cells.setdefault(run, Cell(number, cell_labels, name, settings, config, store / run))
    distinguishing = distinguishing_labels((cell.name, cell.labels) for cell in cells.values())
    labelled = [replace(cell, apart=labels) for cell, labels in zip(cells.values(), distinguishing, strict=True)]
    faults = fault_lines(refusals)
    return labelled, [*faults, *grid.unswept(faults)]


def check_settings(grid: Grid, plugins: Sequence[Choice] = (), every: bool = False) -> tuple[list[str], bool]:
    """The faults of the settings of cells that show without importing what they train.

    Parameters
    ----------
    grid, plugins : as those of `expand`.
    every : look at every cell; otherwise only until one is found in which nothing is wrong.

    Returns
    -------
    faults, some_good : a line for each reason; and whether such a cell was found.
    """
    refusals = list[Fault]()
    composed = _composed(grid, plugins, refusals, settled=False)
    some_good = next(composed, None) is not None
    if every:
        for _ in composed:
            pass
    faults = fault_lines(refusals)
    return [*faults, *grid.unswept(faults)], some_good


def _composed(
    grid: Grid, plugins: Sequence[Choice], faults: list[Fault], settled: bool = True
) -> Iterator[tuple[int, Settings, str | None, dict[str, Any]]]:
    """Number, settings, name and configuration of every cell, seed after seed; `faults` gets those that have none."""
    for number, (seed, point) in enumerate(product(grid.seeds or (None,), grid.points), 1):
        settings = point.settings | ({} if seed is None else {"seed": str(seed)})
        try:
            config = compose(words_of(settings), plugins, settled=settled)
        except ConfigError as error:
            faults.append((number, settings, error))
        else:
            yield number, settings, point.name, config


def _labels(points: Sequence[Settings]) -> list[str]:
    """The keys whose values are not the same everywhere, and the method.

    >>> _labels([{"method": "psgd", "steps": "5"}, {"method": "psgd", "steps": "5", "optimizer.lr": "1"}])
    ['method', 'optimizer.lr']
    """
    keys = dict.fromkeys(key for point in points for key in point)
    varying = [key for key in keys if key != "seed" and len({point.get(key) for point in points}) > 1]
    first = [key for key in ("method", "compressor", "topology") if key in varying or key == "method" in keys]
    return [*first, *(key for key in varying if key not in first)]


def measured(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The names in every row of a run's measurements; None where a plug-in evaluates, which may measure anything.

    >>> measured({"task": {"_target_": "commeff.experiments.tasks.Quadratic"}})[:3]
    ('train_loss', 'val_loss', 'distance')
    """
    from commeff.experiments.tasks import Supervised  # with torch, which a mistake should not wait for

    kind: Any = locate(config["task"]["_target_"])
    for task in built_in("task"):
        builtin: Any = locate(node("task", task)["_target_"])
        if all(getattr(kind, part, None) is getattr(builtin, part, None) for part in ("evaluate", "measures")):
            classes = getattr(kind, "hits", None) is not Supervised.hits
            return tuple(name for name in measured_by_name(task) if classes or name != "val_accuracy")
    return None


def measured_by_name(task: str) -> tuple[str, ...]:
    """The names in every row of a run of one of our tasks, as far as the task's name determines them."""
    return (*OTHERS.get(task, CLASSES), *ALWAYS)


def unmeasured(grid: Grid, cells: Sequence[Cell] = ()) -> list[str]:
    """A line for each measurement that the grid counts to or chooses by, and no run of it has: without its cells, as
    far as the names of tasks say it, none of which is imported.
    """
    tasks = {str(point.settings.get("task")) for point in grid.points}
    known = tasks if tasks <= {*built_in("task")} else ()
    measurements = [measured(cell.config) for cell in cells] or [measured_by_name(task) for task in known]
    if not measurements or None in measurements:
        return []
    names = dict.fromkeys(name for run in measurements for name in run or ())
    required = [
        *(("target", name) for name in grid.target or ()),
        *(("select.by", s["by"]) for s in [grid.select] if s and s["by"] != STEPS_TO_TARGET),
    ]
    return [
        f"{part}: no run of the grid measures {name}{did_you_mean(name, names)}; they measure {', '.join(names)}"
        for part, name in required
        if name not in names
    ]


def rehearse(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Build the cells that are not finished.

    Returns
    -------
    cells, faults : the cells with the bytes of their checkpoints, and a line for each reason why some cannot run.
    """
    rehearsals, refusals, sized = Rehearsals(), list[Fault](), list[Cell]()
    for cell in cells:
        try:
            sized.append(cell if cell.finished else replace(cell, checkpoint=rehearsals.checkpoint(cell.config)))
        except ConfigError as error:
            refusals.append((cell.number, cell.settings, error))
            sized.append(cell)
    return sized, fault_lines(refusals)


class Rehearsals:
    """Builds each kind of cell once: seeds, steps and rates above 0 change neither what fits nor how large it is.

    Cells that follow each other with one task share its data, which are read once.
    """

    def __init__(self) -> None:
        self._results: dict[str, int | ConfigError] = {}
        self._task: tuple[str, Task | None] = ("", None)

    def checkpoint(self, config: Mapping[str, Any]) -> int:
        """Bytes of the checkpoint of a run, or `ConfigError`."""
        task = json.dumps({**config["task"], "seed": None}, sort_keys=True)
        built = {name: config.get(name) for name in (*BUILT, *MESH)} | {"optimizer": _of_any_rate(config["optimizer"])}
        from commeff.experiments.config.build import build  # with torch

        kind = json.dumps({**built, "task": task}, sort_keys=True)
        if kind not in self._results:
            try:
                parts = build(config, self._task[1] if self._task[0] == task else None)
                self._task, self._results[kind] = (task, parts.task), parts.checkpoint
            except ConfigError as error:
                self._results[kind] = error
        result = self._results[kind]
        if isinstance(result, ConfigError):
            raise result
        return result


def _of_any_rate(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """An optimizer's settings but for its rate, if that is above 0.

    >>> _of_any_rate({"lr": 0.1, "momentum": 0.9}), _of_any_rate({"lr": -1})
    ({'lr': 'above 0', 'momentum': 0.9}, {'lr': -1})
    """
    rate = optimizer.get("lr")
    return {**optimizer, "lr": "above 0"} if isinstance(rate, (int, float)) and rate > 0 else dict(optimizer)
