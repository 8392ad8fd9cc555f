"""A cell: one run of a grid."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid: what tells it from the others, its settings, and its resolved configuration."""

    number: int
    labels: Mapping[str, str]
    name: str | None
    settings: Mapping[str, str]
    config: Mapping[str, Any]
    folder: Path

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.config["seed"])

    @property
    def title(self) -> str:
        """What tells it from the others, in words."""
        return in_words(self.labels, self.name, self.seed)

    def command(self, store: Path, plugins: Sequence[str] = ()) -> str:
        """What a reader types to run this cell alone."""
        words = [f"{key}={value}" for key, value in self.settings.items()]
        files = [word for plugin in plugins for word in ("--plugin", plugin)]
        return " ".join(["commeff train", *files, *map(shlex.quote, words), f"--store {store}"])


def in_words(labels: Mapping[str, str], name: str | None, seed: int) -> str:
    """What tells a cell from the others.

    >>> in_words({"method": "dsgd", "topology": "ring", "optimizer.lr": "0.1"}, None, 2)
    'dsgd ring lr=0.1 seed 2'
    """
    said = [v if _speaks(k, v) else f"{k.split('.')[-1]}={v}" for k, v in labels.items() if v]
    return f"{name or ' '.join(said)} seed {seed}".strip()


def _speaks(key: str, value: str) -> bool:
    """Whether a value says what it is without its key: names do, numbers do not."""
    return "." not in key and not value.replace(".", "", 1).isdigit() and value not in ("true", "false", "null")
