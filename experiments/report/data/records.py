"""Run folders as a reader meets them: unfinished, cut off or damaged ones too, each with what is wrong with it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from commeff.experiments.config.schema import GROUPS, current
from commeff.experiments.config.settings import RUN
from commeff.experiments.escape import visible
from commeff.experiments.report.data.statistics import first_reached
from commeff.experiments.run.origins import inside
from commeff.experiments.run.reading import parse_yaml, read_mapping, read_text
from commeff.experiments.run.store import MARKS, STATES, check_store, state_of, typed
from commeff.training.divergence import blown_up, learned_nothing

ENDED_BADLY = ("diverged", "failed", "oom", "timeout", "killed", "skipped")
UNFINISHED = ("running", "queued", "killed")
COUNTED = ("workers", "nproc", "steps", "seed")  # whole numbers of a configuration
LAST = 10_000  # signs of error.txt that are read
LARGEST = 1e100  # of the numbers that are shown: their squares can be summed
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Record:
    """What one run folder says; `faults` has a line for every file that could not be read."""

    id: str
    folder: Path
    state: str = "queued"
    config: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    curve: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    error: str = ""
    reason: str = ""  # why it counts as diverged
    faults: tuple[str, ...] = ()
    undrawn: str = ""  # what of it no report shows, and why

    def final(self, metric: str) -> float:
        """A number at the end of a run that is done, NaN for any other: half a run has no final accuracy.

        The consensus distance is the mean over all evaluations, since its last value depends on when workers last met.
        """
        if self.state != "done":
            return math.nan
        if metric == "consensus_distance":
            return float(self.curve[metric].mean()) if metric in self.curve else math.nan
        value = self.summary.get(metric)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan

    def reached(self, metric: str, level: float) -> pd.Series | None:
        """Where it first gets as good as a level; a run that diverged reaches nothing."""
        return first_reached(self.curve, metric, level) if self.state == "done" else None

    @property
    def numbers(self) -> list[str]:
        """The names of what its summary has a number of."""
        return [name for name, value in self.summary.items() if isinstance(value, (int, float))]

    @cached_property
    def parts(self) -> Any:
        """The configuration with what the store has instead of files that it names, to build parts of it.

        Raises
        ------
        ValueError : if the store has nothing instead.
        """
        return inside(self.config, self.folder)

    @property
    def idle(self) -> bool:
        """Whether the run came to its end and learned nothing."""
        return learned_nothing(*map(self.final, ("val_loss", "train_loss", "start_loss")))


def read_store(store: Path) -> list[Record]:
    """Every run folder of a store, by name."""
    check_store(store)
    return [read_record(path) for path in sorted(store.iterdir()) if any((path / mark).is_file() for mark in MARKS)]


def read_record(folder: Path) -> Record:
    """One run folder; one that does not exist yet is queued."""
    if not folder.is_dir():
        return Record(folder.name, folder)
    faults: list[str] = []
    status = _status(folder / "status.json", faults)
    done = status.get("state") == "done"
    summary = _read(folder / "summary.json", read_mapping, faults, expected=done) or {}
    state = state_of(status, bool(summary))
    curve = _curve(folder / "metrics.jsonl", faults, expected=done)
    reason = str(summary.get("reason") or "") or _blown_up(summary, curve)
    return Record(
        id=folder.name,
        folder=folder,
        state="diverged" if state == "done" and reason else state,
        config=_config(folder / "config.yaml", faults),
        environment=_read(folder / "env.json", read_mapping, faults) or {},
        status=status,
        summary=summary,
        curve=curve,
        error=_last_words(folder / "error.txt"),
        reason=reason,
        faults=tuple(faults),
    )


def drawable(record: Record) -> Record:
    """The part of a run that figures and tables can show; `undrawn` names the rest."""
    workers, curve, most = record.config.get("workers", 0), record.curve, RUN["workers"].most or math.inf
    if workers > most:
        line = f"{record.id} is left out: it has {workers:,} workers, more than {most:,}"
        return replace(record, config={}, summary={}, curve=pd.DataFrame(), undrawn=line)
    summary = {
        name: number for name, number in record.summary.items() if not (isinstance(number, float) and _wild(number))
    }
    wild = _wild(curve.to_numpy())
    names = {*curve.columns[wild.any(axis=0)], *record.summary.keys() - summary.keys()}
    if not names:
        return record
    line = f"{record.id}: numbers larger than {LARGEST:g} are left out, in {', '.join(sorted(names))}"
    curve = curve.mask(wild).dropna(subset="step") if wild.any() else curve
    return replace(record, summary=summary, curve=curve, undrawn=line)


def _wild(numbers: Any) -> Any:
    return np.abs(numbers) > LARGEST


def _status(path: Path, faults: list[str]) -> dict[str, Any]:
    content = _read(path, read_mapping, faults) or {}
    status = typed(content)
    if content and (
        len(status) < sum(fact is not None for fact in content.values()) or status.get("state") not in STATES
    ):
        faults.append(f"{path.parent.name}/{path.name} does not say how the run stands; counted by what it says")
    return status


def _config(path: Path, faults: list[str]) -> dict[str, Any]:
    """The configuration of a run, {} where the file holds none."""
    config = _read(path, partial(read_mapping, parse=parse_yaml), faults) or {}
    numbers = all(isinstance(config[key], int) and config[key] >= 0 for key in COUNTED if key in config)
    parts = all(isinstance(config[group], dict) for group in GROUPS if group in config)
    if not numbers or not parts:
        faults.append(f"{path.parent.name}/{path.name} describes no run")
        return {}
    names: dict[str, Any] = current(config)
    return names


def _read(path: Path, read: Callable[[Path], T], faults: list[str], expected: bool = True) -> T | None:
    try:
        return read(path)
    except FileNotFoundError:
        if expected:
            faults.append(f"{path.parent.name}/{path.name} is missing")
    except OSError:
        faults.append(f"{path.parent.name}/{path.name} cannot be read")
    except ValueError as error:
        faults.append(f"{path.parent.name}/{path.name} cannot be read: {error}")
    return None


def _curve(path: Path, faults: list[str], expected: bool) -> pd.DataFrame:
    """The evaluations in order. A last line that a crash cut off does not count; any other damage is a fault."""
    lines, rows = (_read(path, read_text, faults, expected) or "").split("\n"), []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = {name: float(value) for name, value in json.loads(line).items() if isinstance(value, (int, float))}
            rows.append({"step": int(row["step"])} | row)
        except (ValueError, KeyError, AttributeError, OverflowError, RecursionError):
            faults.append(f"{path.parent.name}/{path.name}: line {number} cannot be read")
    if not rows:
        return pd.DataFrame()
    names = dict.fromkeys(name for row in rows for name in row)
    curve = pd.DataFrame(np.array([[row.get(name, math.nan) for name in names] for row in rows]), columns=[*names])
    return curve if curve["step"].is_unique else curve.drop_duplicates("step", keep="last")


def _blown_up(summary: Mapping[str, Any], curve: pd.DataFrame) -> str:
    """Why a run has diverged by today's rule; one older than the rule began with its first evaluation."""
    loss = next((name for name in ("val_loss", "train_loss") if name in summary and name in curve), None)
    first = {"start_loss": float(curve[loss].iloc[0])} if loss else {}
    numbers = {name: value for name, value in summary.items() if value is None or isinstance(value, (int, float))}
    return blown_up(first | numbers)


def _last_words(path: Path) -> str:
    """The message at the end of a traceback: the lines after its last indented one.

    >>> _last_words(Path("nowhere"))
    ''
    """
    try:
        lines = visible(read_text(path)[-LAST:]).rstrip().splitlines()
    except OSError:
        return ""
    indented = [i for i, line in enumerate(lines) if line.startswith(" ")]
    return "\n".join(lines[indented[-1] + 1 if indented else 0 :][-6:])
