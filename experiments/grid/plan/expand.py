"""From a grid to its cells: composed, built and rehearsed, so that refusals come before anything runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.disk_space import store_faults
from commeff.experiments.grid.plan.spec import Grid, Settings
from commeff.experiments.run.store import run_id
from commeff.training.task import Task


def expand(grid: Grid, store: Path, plugins: Sequence[Choice] = (), rehearsed: bool = True) -> list[Cell]:
    """The cells of a grid, seed after seed. A cell that two products share counts once.

    Parameters
    ----------
    grid : as `read_grid` gives it.
    store : the folder of runs.
    plugins : choices beside the built-in ones.
    rehearsed : build each cell too, which finds what does not fit and how large its checkpoints are.

    Raises
    ------
    ConfigError : with everything that is wrong with any cell, each fault once.
    """
    faults: dict[str, list[int]] = {}
    every = [(point, seed) for seed in grid.seeds or (None,) for point in grid.points]
    settings = [point.settings | ({} if seed is None else {"seed": str(seed)}) for point, seed in every]
    labels = _labels([point.settings for point in grid.points])
    by_run: dict[str, Cell] = {}
    for number, (chosen, (point, _)) in enumerate(zip(settings, every, strict=True), 1):
        try:
            config = compose([f"{key}={value}" for key, value in chosen.items()], plugins)
            run = run_id(config)
        except ConfigError as error:
            for fault in error.faults:
                faults.setdefault(fault, []).append(number)
            continue
        own = {key: chosen.get(key, "") for key in labels}
        by_run.setdefault(run, Cell(number, own, point.name, chosen, config, store / run))
    cells, rehearsals = list(by_run.values()), Rehearsals()
    if rehearsed:
        cells = [_rehearse(cell, rehearsals, faults) for cell in cells]
    lines = [f"{_cells(numbers, settings)}: {fault}" for fault, numbers in faults.items()] + store_faults(store)
    if lines:
        raise ConfigError(lines)
    return cells


def _labels(points: Sequence[Settings]) -> list[str]:
    """The keys whose values are not the same everywhere, and the method.

    >>> _labels([{"method": "psgd", "steps": "5"}, {"method": "psgd", "steps": "5", "optimizer.lr": "1"}])
    ['method', 'optimizer.lr']
    """
    keys = dict.fromkeys(key for point in points for key in point)
    varying = [key for key in keys if key != "seed" and len({point.get(key) for point in points}) > 1]
    first = [key for key in ("method", "compressor", "topology") if key in varying or key == "method" in keys]
    return [*first, *(key for key in varying if key not in first)]


class Rehearsals:
    """Builds each kind of cell once: seeds change neither what fits nor how large it is.

    Cells that follow each other with one task share its data, which are read once.
    """

    def __init__(self) -> None:
        self._results: dict[str, int | ConfigError] = {}
        self._task: tuple[str, Task | None] = ("", None)

    def checkpoint(self, config: Mapping[str, Any]) -> int:
        """Bytes of the checkpoint of a run, or `ConfigError`."""
        task = json.dumps({**config["task"], "seed": None}, sort_keys=True)
        kind = json.dumps({**config, "seed": None, "task": task}, sort_keys=True)
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


def _rehearse(cell: Cell, rehearsals: Rehearsals, faults: dict[str, list[int]]) -> Cell:
    """The cell with the bytes of its checkpoint; reasons why it cannot run go to `faults`."""
    if cell.finished:
        return cell
    try:
        return replace(cell, checkpoint=rehearsals.checkpoint(cell.config))
    except ConfigError as error:
        for fault in error.faults:
            faults.setdefault(fault, []).append(cell.number)
        return cell


def _cells(numbers: Sequence[int], settings: Sequence[Settings]) -> str:
    """'cell 37 (method=dsgd seed=0)', with the number of others that share the fault."""
    words = " ".join(f"{key}={value}" for key, value in settings[numbers[0] - 1].items())
    others = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
    return f"cell {numbers[0]}{others} ({words})"
