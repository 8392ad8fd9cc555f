"""A cell: one run of a grid; and which of them --only and --shard keep."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.spec import Grid, text
from commeff.experiments.run.store import FINISHED, STATES, RunFolder

KEEPS_NONE = f"--only {{}} keeps no cell; give key=value, a state ({', '.join(STATES)}) or a run"


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid.

    Attributes
    ----------
    number : its place in the grid, from 1.
    labels : the settings in which it differs from other cells.
    name : what the grid's author calls it, if anything.
    settings, config : as the grid has them, and resolved.
    folder : of the run.
    checkpoint : bytes of its checkpoint, once it is rehearsed.
    """

    number: int
    labels: Mapping[str, str]
    name: str | None
    settings: Mapping[str, str]
    config: Mapping[str, Any]
    folder: Path
    checkpoint: int = 0

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.config["seed"])

    @property
    def finished(self) -> bool:
        """Whether its result is there."""
        return RunFolder(self.folder).state in FINISHED

    @property
    def processes(self) -> int:
        """How many processes share its workers."""
        return int(self.config["nproc"])

    def slots(self, jobs: int) -> int:
        """How many of `jobs` places it takes: one for each of its processes, all of them if it has more."""
        return min(self.processes, jobs)

    @property
    def title(self) -> str:
        """Its labels in words."""
        return in_words(self.labels, self.name, self.seed)

    def words(self, store: Path, plugins: Sequence[str] = ()) -> list[str]:
        """The arguments of `commeff` that run this cell alone."""
        words = [f"{key}={value}" for key, value in self.settings.items()]
        files = [word for plugin in plugins for word in ("--plugin", plugin)]
        return ["train", *files, *words, "--store", str(store)]

    def command(self, store: Path, plugins: Sequence[str] = ()) -> str:
        """The command that runs this cell alone."""
        return shlex.join(["commeff", *self.words(store, plugins)])


class Faults:
    """Why cells cannot run: each reason once, with the first cell that it stops and the number of others."""

    def __init__(self) -> None:
        self._cells: dict[str, list[tuple[int, Mapping[str, str]]]] = {}

    def add(self, number: int, settings: Mapping[str, str], error: ConfigError) -> None:
        """Add the reasons why a cell cannot run."""
        for reason in error.faults:
            self._cells.setdefault(reason, []).append((number, settings))

    def lines(self) -> list[str]:
        """Such as 'cell 37 and 2 more (method=dsgd seed=0): why'."""
        lines = []
        for reason, cells in self._cells.items():
            (number, settings), others = cells[0], f" and {len(cells) - 1} more" if len(cells) > 1 else ""
            words = " ".join(f"{key}={value}" for key, value in settings.items())
            lines.append(f"cell {number}{others} ({words}): {reason}")
        return lines


def in_words(labels: Mapping[str, str], name: str | None, seed: int) -> str:
    """The labels of a cell in words; keys are as long as they must be to differ.

    >>> in_words({"method": "dsgd", "topology": "ring", "optimizer.lr": "0.1"}, None, 2)
    'dsgd ring lr=0.1 seed 2'
    >>> in_words({"method": "diloco", "optimizer.lr": "0.1", "method.outer.lr": "0.7"}, None, 2)
    'diloco optimizer.lr=0.1 outer.lr=0.7 seed 2'
    """
    words = [v if _speaks(k, v) else f"{_short(k, labels)}={v}" for k, v in labels.items() if v]
    return f"{name or ' '.join(words)} seed {seed}".strip()


def _short(key: str, keys: Iterable[str]) -> str:
    """The end of a dotted key that no other key ends with."""
    parts, others = key.split("."), [other.split(".") for other in keys if other != key]
    lengths = range(1, len(parts) + 1)
    length = next((i for i in lengths if not any(other[-i:] == parts[-i:] for other in others)), len(parts))
    return ".".join(parts[-length:])


def _speaks(key: str, value: str) -> bool:
    """Whether a value is clear without its key: names are, numbers are not."""
    return "." not in key and not value.replace(".", "", 1).isdigit() and value not in ("true", "false", "null")


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
