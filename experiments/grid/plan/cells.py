"""A cell: one run of a grid."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commeff.experiments.run.store import FINISHED, RunFolder


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid: what tells it from the others, its settings, and its resolved configuration."""

    number: int
    labels: Mapping[str, str]
    name: str | None
    settings: Mapping[str, str]
    config: Mapping[str, Any]
    folder: Path
    checkpoint: int = 0  # bytes, once it is rehearsed

    @property
    def seed(self) -> int:
        """Its seed."""
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
        """How many of `jobs` processes at a time it takes: one for each of its own, all of them if it has more."""
        return min(self.processes, jobs)

    @property
    def title(self) -> str:
        """What tells it from the others, in words."""
        return in_words(self.labels, self.name, self.seed)

    def words(self, store: Path, plugins: Sequence[str] = ()) -> list[str]:
        """What `commeff` is told to run this cell alone."""
        words = [f"{key}={value}" for key, value in self.settings.items()]
        files = [word for plugin in plugins for word in ("--plugin", plugin)]
        return ["train", *files, *words, "--store", str(store)]

    def command(self, store: Path, plugins: Sequence[str] = ()) -> str:
        """What a reader types to run this cell alone."""
        return shlex.join(["commeff", *self.words(store, plugins)])


def in_words(labels: Mapping[str, str], name: str | None, seed: int) -> str:
    """What tells a cell from the others; keys are as long as they must be to differ.

    >>> in_words({"method": "dsgd", "topology": "ring", "optimizer.lr": "0.1"}, None, 2)
    'dsgd ring lr=0.1 seed 2'
    >>> in_words({"method": "diloco", "optimizer.lr": "0.1", "method.outer.lr": "0.7"}, None, 2)
    'diloco optimizer.lr=0.1 outer.lr=0.7 seed 2'
    """
    said = [v if _speaks(k, v) else f"{_short(k, labels)}={v}" for k, v in labels.items() if v]
    return f"{name or ' '.join(said)} seed {seed}".strip()


def _short(key: str, keys: Iterable[str]) -> str:
    """The end of a dotted key that no other key ends with."""
    parts, others = key.split("."), [other.split(".") for other in keys if other != key]
    lengths = range(1, len(parts) + 1)
    length = next((i for i in lengths if not any(other[-i:] == parts[-i:] for other in others)), len(parts))
    return ".".join(parts[-length:])


def _speaks(key: str, value: str) -> bool:
    """Whether a value says what it is without its key: names do, numbers do not."""
    return "." not in key and not value.replace(".", "", 1).isdigit() and value not in ("true", "false", "null")
