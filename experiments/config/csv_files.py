"""The CSV files that a configuration takes in: who is available when, and how long workers compute for a step."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from commeff.experiments.config.schema import ConfigError
from commeff.files import regular

LONGEST = 100_000  # lines
KINDS = ("constant", "staggered", "drawn")  # of speeds, beside files


def read_availability(path: str) -> list[list[int]]:
    """[[worker, start, stop], ...] of a CSV file with these columns: the worker is there in steps start <= k < stop.

    Raises
    ------
    ConfigError
        The file is none, or a line of it is not three whole numbers.
    """
    return _rows("availability", "a CSV file", path, {"worker": int, "start": int, "stop": int})


def read_speeds(path: str) -> str | list[list[float]]:
    """A kind of speeds as it is; [[worker, seconds], ...] of a CSV file with these columns, in its order.

    Raises
    ------
    ConfigError
        The file is none, or a line of it is not a worker and a number.
    """
    if path in KINDS:
        return path
    rows = _rows("speeds", f"{', '.join(KINDS)} or a CSV file", path, {"worker": int, "seconds": float})
    if not rows:
        raise ConfigError([f"speeds must have at least one line of a worker, got none in {path}"])
    return rows


def _rows(key: str, must: str, path: str, columns: dict[str, Callable[[str], Any]]) -> list[list[Any]]:
    try:
        with open(Path(path).expanduser(), newline="", encoding="utf-8", opener=regular) as file:
            rows = [[cell.strip() for cell in row] for row in islice(csv.reader(file), LONGEST + 2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([f"{key} must be {must}, got {path}: {reason}"]) from None
    if rows[:1] != [[*columns]]:
        raise ConfigError([f"{key} must begin with the line {','.join(columns)}, got another in {path}"])
    if len(rows) > LONGEST + 1:
        raise ConfigError([f"{key} must have at most {LONGEST:,} lines, got more in {path}"])
    return [_row(key, columns, row, f"line {n} of {path}") for n, row in enumerate(rows[1:], start=2) if row]


def _row(key: str, columns: dict[str, Callable[[str], Any]], row: Sequence[str], place: str) -> list[Any]:
    try:
        return [read(cell) for read, cell in zip(columns.values(), row, strict=True)]
    except ValueError:
        must = f"{key} must have numbers for {', '.join(columns)} in each line"
        raise ConfigError([f"{must}, got another in {place}"]) from None
