"""From a grid file's combinations to its cells: each is composed, and named by what decides its result."""

from __future__ import annotations

from collections.abc import Sequence
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
    points = [(point, seed) for seed in grid.seeds or (None,) for point in grid.points]
    labels = _labels([point.settings for point in grid.points])
    for number, (point, seed) in enumerate(points, 1):
        settings = point.settings | ({} if seed is None else {"seed": str(seed)})
        try:
            config = compose([f"{key}={value}" for key, value in settings.items()], plugins)
            run = run_id(config)
        except ConfigError as error:
            faults.add(number, settings, error)
            continue
        own = {key: settings.get(key, "") for key in labels}
        cells.setdefault(run, Cell(number, own, point.name, settings, config, store / run))
    return Expansion(list(cells.values()), faults.lines())


def _labels(points: Sequence[Settings]) -> list[str]:
    """The keys whose values are not the same everywhere, and the method.

    >>> _labels([{"method": "psgd", "steps": "5"}, {"method": "psgd", "steps": "5", "optimizer.lr": "1"}])
    ['method', 'optimizer.lr']
    """
    keys = dict.fromkeys(key for point in points for key in point)
    varying = [key for key in keys if key != "seed" and len({point.get(key) for point in points}) > 1]
    first = [key for key in ("method", "compressor", "topology") if key in varying or key == "method" in keys]
    return [*first, *(key for key in varying if key not in first)]
