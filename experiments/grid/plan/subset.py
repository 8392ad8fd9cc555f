"""Some cells of a grid: those that --only and --shard keep."""

from __future__ import annotations

import re
from collections.abc import Sequence

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.spec import Grid, text
from commeff.experiments.run.store import STATES, RunFolder

KEEPS_NONE = f"--only {{}} keeps no cell; give key=value, a state ({', '.join(STATES)}) or a run"


def only_faults(grid: Grid, rules: Sequence[str]) -> list[str]:
    """Rules that keep no cell, as far as the settings of the file say."""
    every = [point.settings for point in grid.points]
    pairs = [(rule, *rule.partition("=")[::2]) for rule in rules if "=" in rule]
    return [
        KEEPS_NONE.format(rule)
        for rule, key, value in pairs
        if all(settings.get(key, value) != value for settings in every)
    ]


def keep_only(cells: Sequence[Cell], rules: Sequence[str]) -> list[Cell]:
    """The cells that every rule keeps: key=value, a state, or the beginning of a run's name."""
    for rule in rules:
        key, equals, value = rule.partition("=")
        if equals:
            chosen = [cell for cell in cells if cell.settings.get(key, text(cell.config.get(key))) == value]
        elif rule in STATES:
            chosen = [cell for cell in cells if RunFolder(cell.folder).state == rule]
        else:
            chosen = [cell for cell in cells if cell.folder.name.startswith(rule) or cell.folder.name.endswith(rule)]
        if not chosen and cells and rule not in STATES:
            raise ConfigError([KEEPS_NONE.format(rule)])
        cells = chosen
    return list(cells)


def keep_shard(cells: Sequence[Cell], shard: str | None) -> list[Cell]:
    """Every n-th cell, beginning with the i-th.

    >>> keep_shard([], "4/3")
    Traceback (most recent call last):
    commeff.experiments.config.schema.ConfigError: --shard must be i/n with i from 1 to n, such as 1/4, got 4/3
    """
    if shard is None:
        return list(cells)
    if faults := shard_faults(shard):
        raise ConfigError(faults)
    place, count = map(int, shard.split("/"))
    return list(cells)[place - 1 :: count]


def shard_faults(shard: str | None) -> list[str]:
    match = re.fullmatch(r"(\d+)/(\d+)", shard or "1/1")
    good = match is not None and 1 <= int(match[1]) <= int(match[2])
    return [] if good else [f"--shard must be i/n with i from 1 to n, such as 1/4, got {shard}"]
