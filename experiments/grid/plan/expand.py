"""From a grid file's combinations to its cells: each is composed, and named by what decides its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import Cell, Faults
from commeff.experiments.grid.plan.spec import Grid, Settings
from commeff.experiments.run.store import run_id


class Expansion(NamedTuple):
    """The cells of a grid that can be composed, and a line for each reason why others cannot."""

    cells: list[Cell]
    faults: list[str]


def expand(grid: Grid, store: Path, plugins: Sequence[Choice] = ()) -> Expansion:
    """Compose the cells of a grid, seed after seed. A cell that two products share counts once.

    Parameters
    ----------
    grid : as `read_grid` gives it.
    store : the folder of runs.
    plugins : choices beside the built-in ones.
    """
    faults, cells = Faults(), dict[str, Cell]()
    labels = _labels([point.settings for point in grid.points])
    for number, (settings, name) in enumerate(_points(grid, grid.seeds), 1):
        try:
            config = compose(_words(settings), plugins)
            run = run_id(config)
        except ConfigError as error:
            faults.add(number, settings, error)
            continue
        own = {key: settings.get(key, "") for key in labels}
        cells.setdefault(run, Cell(number, own, name, settings, config, store / run))
    return Expansion(list(cells.values()), faults.lines())


def check_settings(grid: Grid, plugins: Sequence[Choice] = (), every: bool = False) -> tuple[list[str], bool]:
    """What is wrong with the settings of cells, known without importing what they train.

    Parameters
    ----------
    grid, plugins : as those of `expand`.
    every : look at every cell; otherwise only until one is found in which nothing is wrong.

    Returns
    -------
    faults, some_good : a line for each reason; and whether such a cell was found.
    """
    faults, some_good = Faults(), False
    for number, (settings, _) in enumerate(_points(grid, grid.seeds), 1):
        try:
            compose(_words(settings), plugins, settled=False)
        except ConfigError as error:
            faults.add(number, settings, error)
            continue
        some_good = True
        if not every:
            break
    return faults.lines(), some_good


def _points(grid: Grid, seeds: Sequence[int]) -> Iterator[tuple[Settings, str | None]]:
    """The settings of every cell, seed after seed, and what its author calls it."""
    for seed in seeds or (None,):
        for point in grid.points:
            yield point.settings | ({} if seed is None else {"seed": str(seed)}), point.name


def _words(settings: Settings) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def _labels(points: Sequence[Settings]) -> list[str]:
    """The keys whose values are not the same everywhere, and the method.

    >>> _labels([{"method": "psgd", "steps": "5"}, {"method": "psgd", "steps": "5", "optimizer.lr": "1"}])
    ['method', 'optimizer.lr']
    """
    keys = dict.fromkeys(key for point in points for key in point)
    varying = [key for key in keys if key != "seed" and len({point.get(key) for point in points}) > 1]
    first = [key for key in ("method", "compressor", "topology") if key in varying or key == "method" in keys]
    return [*first, *(key for key in varying if key not in first)]
