"""A cell: one run of a grid; which of them --only and --shard keep; and what they will take: seconds, from cells that
are finished, and space on a disk that can be written.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.spec import Grid, text, words_of
from commeff.experiments.run.store import FINISHED, STATES, RunFolder, check_version

KEEPS_NONE = f"--only {{}} keeps no cell; give key=value, a state ({', '.join(STATES)}) or a run"
STEP = ("task", "workers", "accumulate", "precision")  # what a step computes
KINDS: tuple[tuple[str, ...], ...] = (  # nearest first
    (*STEP, "nproc", "method"),
    (*STEP, "nproc"),
    STEP,
    ("task", "workers"),
    (),
)


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
    apart : the labels in which it differs from other cells of its name.
    """

    number: int
    labels: Mapping[str, str]
    name: str | None
    settings: Mapping[str, str]
    config: Mapping[str, Any]
    folder: Path
    checkpoint: int = 0
    apart: Mapping[str, str] = field(default_factory=dict)

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
        """Its name, and what tells it from other cells."""
        return in_words(self.apart, self.name, self.seed)

    def words(self, plugins: Sequence[str] = ()) -> list[str]:
        """The arguments of `commeff` that run this cell alone."""
        files = [word for plugin in plugins for word in ("--plugin", plugin)]
        return ["train", *files, *words_of(self.settings), "--store", str(self.folder.parent)]

    def command(self, plugins: Sequence[str] = ()) -> str:
        """The command that runs this cell alone."""
        return shlex.join(["commeff", *self.words(plugins)])


Fault = tuple[int, Mapping[str, str], ConfigError]  # a cell's number and settings, and why it cannot run


def fault_lines(faults: Iterable[Fault]) -> list[str]:
    """Why cells cannot run: each reason once, with the first cell that it stops and the number of others.

    Such as 'cell 37 and 2 more (method=dsgd seed=0): why'.
    """
    cells: dict[str, list[tuple[int, Mapping[str, str]]]] = {}
    for number, settings, error in faults:
        for reason in error.faults:
            cells.setdefault(reason, []).append((number, settings))
    lines = []
    for reason, ((number, settings), *others) in cells.items():
        more = f" and {len(others)} more" if others else ""
        lines.append(f"cell {number}{more} ({' '.join(words_of(settings))}): {reason}")
    return lines


def distinguishing_labels(cells: Iterable[tuple[str | None, Mapping[str, str]]]) -> list[dict[str, str]]:
    """The labels of cells that a reader needs beside their names: all of a cell without one, else what varies under it.

    >>> distinguishing_labels([(None, {"method": "psgd"}), *(("ours", {"method": "dsgd", "lr": lr}) for lr in "12")])
    [{'method': 'psgd'}, {'lr': '1'}, {'lr': '2'}]
    """
    entries, values = list(cells), dict[tuple[str | None, str], set[str]]()
    for name, labels in entries:
        for key, value in labels.items():
            values.setdefault((name, key), set()).add(value)
    return [{k: v for k, v in labels.items() if name is None or len(values[name, k]) > 1} for name, labels in entries]


def in_words(labels: Mapping[str, str], name: str | None, seed: int) -> str:
    """The labels of a cell in words; keys are as long as they must be to differ.

    >>> in_words({"method": "dsgd", "topology": "ring", "optimizer.lr": "0.1"}, None, 2)
    'dsgd ring lr=0.1 seed 2'
    >>> in_words({"method": "diloco", "optimizer.lr": "0.1", "method.outer.lr": "0.7"}, None, 2)
    'diloco optimizer.lr=0.1 outer.lr=0.7 seed 2'
    >>> in_words({"method.period": "8"}, "local steps", 2)
    'local steps period=8 seed 2'
    """
    words = [v if _speaks(k, v) else f"{_short(k, labels)}={v}" for k, v in labels.items() if v]
    return " ".join([*([name] if name else []), *words, f"seed {seed}"])


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
    variants = [point.settings for point in grid.points]
    pairs = [(rule, *rule.partition("=")[::2]) for rule in rules if "=" in rule]
    return [
        KEEPS_NONE.format(rule)
        for rule, key, value in pairs
        if all(settings.get(key, value) != value for settings in variants)
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
    if faults := shard_faults(shard):
        raise ConfigError(faults)
    place, count = map(int, (shard or "1/1").split("/"))
    return list(cells)[place - 1 :: count]


def shard_faults(shard: str | None) -> list[str]:
    match = re.fullmatch(r"(\d+)/(\d+)", shard or "1/1")
    good = match is not None and 1 <= int(match[1]) <= int(match[2])
    return [] if good else [f"--shard must be i/n with i from 1 to n, such as 1/4, got {shard}"]


def seconds_of(cell: Cell, per_step: Mapping[str, float]) -> float | None:
    """Seconds that a cell will still take: its steps left times the mean seconds a step of the cells most like it."""
    for kind in KINDS:
        seconds = per_step.get(kind_of(cell.config, kind))
        if seconds is not None:
            steps = RunFolder(cell.folder).read("status.json").get("step", 0)
            return seconds * max(0, cell.config["steps"] - steps)
    return None


def rates(cells: Iterable[Cell]) -> dict[str, float]:
    """Mean wall-clock seconds a step of the cells that are finished or begun, by what they have in common."""
    statuses = ((cell, RunFolder(cell.folder).read("status.json")) for cell in cells)
    return by_kind((cell, s["wall"] / s["step"]) for cell, s in statuses if s.get("step") and s.get("wall"))


def by_kind(timed: Iterable[tuple[Cell, float]]) -> dict[str, float]:
    """Mean seconds of a step by what cells have in common."""
    seconds_by_kind: dict[str, list[float]] = {}
    for cell, seconds in timed:
        for kind in KINDS:
            seconds_by_kind.setdefault(kind_of(cell.config, kind), []).append(seconds)
    return {kind: fmean(seconds) for kind, seconds in seconds_by_kind.items()}


def total(cells: Sequence[Cell], per_step: Mapping[str, float], jobs: int) -> float | None:
    """Seconds of unfinished cells on `jobs` processes; None where nothing is known.

    A cell keeps as many of them busy as it has processes of its own; one of unknown length counts like the mean. All
    last no less than the longest.
    """
    forecasts = [seconds_of(cell, per_step) for cell in cells]
    estimates = [seconds for seconds in forecasts if seconds is not None]
    if not estimates:
        return None
    filled = [fmean(estimates) if seconds is None else seconds for seconds in forecasts]
    shared = sum(seconds * cell.slots(jobs) for seconds, cell in zip(filled, cells, strict=True)) / jobs
    return max(shared, *filled)


def check_space(store: Path, cells: Sequence[Cell], jobs: int) -> None:
    """Refuse cells whose checkpoints the disk cannot take; a new one is written before the old one is removed."""
    sizes = [cell.checkpoint for cell in cells if not cell.finished]
    needed, free = sum(sizes) + jobs * max(sizes, default=0), shutil.disk_usage(_existing(store)).free
    if free < needed:
        raise ConfigError(
            [
                f"store {store} must have {needed / 1e6:,.1f} MB free, got {free / 1e6:,.1f} MB: the checkpoints of "
                "the cells take that; free some space or choose another --store"
            ]
        )


def _existing(store: Path) -> Path:
    """The store, or the nearest folder above it that exists."""
    return next(place for place in (store, *store.absolute().parents) if os.path.lexists(place))


def store_faults(store: Path) -> list[str]:
    """The reasons why nothing can be written into the store."""
    place = _existing(store)
    if not place.is_dir():
        return [f"store {store}: {place} is no folder; choose another --store"]
    try:
        check_version(store)
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(os.urandom(1 << 16))
            probe.flush()
            os.fsync(probe.fileno())
    except ConfigError as error:
        return list(error.faults)
    except OSError as error:
        return [f"store {store} cannot be written ({error.strerror or error}); choose another --store"]
    return []


def kind_of(config: Mapping[str, Any], parts: tuple[str, ...]) -> str:
    """The settings shared by cells whose steps take equally long.

    >>> kind_of({"workers": 2, "task": {"batch": 8, "seed": 1}}, ("workers", "task"))
    "[2, {'batch': 8}]"
    """
    chosen = [config[part] for part in parts]
    return str([{k: v for k, v in c.items() if k != "seed"} if isinstance(c, Mapping) else c for c in chosen])
