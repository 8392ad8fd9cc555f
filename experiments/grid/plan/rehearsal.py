"""From a grid to its cells: composed, built and rehearsed, so that what is refused is refused before anything runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.disk_space import store_faults
from commeff.experiments.grid.plan.spec import Grid, Settings
from commeff.experiments.run.store import run_id


def plan(grid: Grid, store: Path, plugins: Sequence[Choice] = (), rehearsed: bool = True) -> list[Cell]:
    """The cells of a grid, seed after seed; `ConfigError` with everything that is wrong.

    Cells that two products share count once. What is not to be run need not be rehearsed.
    """
    faults: dict[str, list[int]] = {}
    every = [(point, s) for s in grid.seeds or (None,) for point in grid.points]
    settings = [point.settings | ({} if s is None else {"seed": str(s)}) for point, s in every]
    labels = _labels([point.settings for point in grid.points])
    cells: dict[str, Cell] = {}
    for number, (chosen, (point, _)) in enumerate(zip(settings, every, strict=True), 1):
        try:
            config = compose([f"{key}={value}" for key, value in chosen.items()], plugins)
            run = run_id(config)
        except ConfigError as error:
            for fault in error.faults:
                faults.setdefault(fault, []).append(number)
            continue
        own = {key: chosen.get(key, "") for key in labels}
        cells.setdefault(run, Cell(number, own, point.name, chosen, config, store / run))
    found = list(cells.values())
    if rehearsed:
        same: dict[str, int | tuple[str, ...]] = {}
        found = [_rehearsed(cell, faults, same) for cell in found]
    said = [f"{_cells(numbers, settings)}: {fault}" for fault, numbers in faults.items()] + store_faults(store)
    if said:
        raise ConfigError(said)
    return found


def _labels(points: Sequence[Settings]) -> list[str]:
    """The keys whose values are not the same everywhere, and the method.

    >>> _labels([{"method": "psgd", "steps": "5"}, {"method": "psgd", "steps": "5", "optimizer.lr": "1"}])
    ['method', 'optimizer.lr']
    """
    keys = dict.fromkeys(key for point in points for key in point)
    varying = [key for key in keys if key != "seed" and len({point.get(key) for point in points}) > 1]
    first = [key for key in ("method", "compressor", "topology") if key in varying or key == "method" in keys]
    return [*first, *(key for key in varying if key not in first)]


def _rehearsed(cell: Cell, faults: dict[str, list[int]], same: dict[str, int | tuple[str, ...]]) -> Cell:
    """The cell with the bytes of its checkpoint; it is built once for all its seeds. What refuses goes to `faults`."""
    if cell.finished:
        return cell
    kind = json.dumps({**cell.config, "seed": None, "task": {**cell.config["task"], "seed": None}}, sort_keys=True)
    if kind not in same:
        try:
            same[kind] = build(cell.config).checkpoint
        except ConfigError as error:
            same[kind] = error.faults
    found = same[kind]
    if isinstance(found, int):
        return replace(cell, checkpoint=found)
    for fault in found:
        faults.setdefault(fault, []).append(cell.number)
    return cell


def _cells(numbers: Sequence[int], settings: Sequence[Settings]) -> str:
    """'cell 37 (method=dsgd seed=0)', with the number of others that share the fault."""
    words = " ".join(f"{key}={value}" for key, value in settings[numbers[0] - 1].items())
    others = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
    return f"cell {numbers[0]}{others} ({words})"
