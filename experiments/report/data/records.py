"""Run folders as a reader meets them: unfinished, cut off or damaged ones too, each with what is wrong with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from commeff.experiments.config.targets import current
from commeff.experiments.run.store import RunFolder, check_version
from commeff.training.verdict import blown_up

STATES = ("done", "diverged", "failed", "oom", "timeout", "killed", "skipped", "running", "queued")
ENDED_BADLY = ("diverged", "failed", "oom", "timeout", "killed", "skipped")
UNFINISHED = ("running", "queued", "killed")
MOST, DEEPEST = 20_000, 32  # values and levels in a file of a run
MARKS = ("config.yaml", "status.json", "metrics.jsonl")  # a folder with one of these is a run's


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

    def final(self, metric: str) -> float:
        """A number at the end of a run that is done, NaN for any other: half a run has no final accuracy.

        The consensus distance is the mean over all evaluations, since its last value depends on when workers last met.
        """
        if self.state != "done":
            return math.nan
        if metric == "consensus_distance":
            return float(self.curve[metric].mean()) if metric in self.curve else math.nan
        value = self.summary.get(metric)
        return float(value) if isinstance(value, (int, float)) else math.nan


def read_store(store: Path) -> list[Record]:
    """Every run folder of a store, by name."""
    if store.exists() and not store.is_dir():
        raise ValueError(f"a store must be a folder that holds one folder a run, got the file {store}")
    if not store.is_dir():
        raise ValueError(f"there is no store {store}; `commeff train --store {store}` makes one")
    check_version(store)
    return [read_record(path) for path in sorted(store.iterdir()) if any((path / mark).is_file() for mark in MARKS)]


def read_record(folder: Path) -> Record:
    """One run folder; one that does not exist yet is queued."""
    if not folder.is_dir():
        return Record(folder.name, folder)
    faults: list[str] = []
    status = _mapping(folder / "status.json", json.loads, faults)
    unmeasured = status.get("state") == "done" and not (folder / "metrics.jsonl").is_file()
    lacking = [f"{folder.name}/metrics.jsonl is missing"] * unmeasured
    state = _state(folder, faults)
    summary = _mapping(folder / "summary.json", json.loads, faults, expected=status.get("state") == "done")
    curve = _curve(folder / "metrics.jsonl", faults)
    reason = str(summary.get("reason") or "") or _blown_up(summary, curve)
    return Record(
        id=folder.name,
        folder=folder,
        state="diverged" if state == "done" and reason else state,
        config=current(_mapping(folder / "config.yaml", yaml.safe_load, faults)),
        environment=_mapping(folder / "env.json", json.loads, faults),
        status=status,
        summary=summary,
        curve=curve,
        error=_last_words(folder / "error.txt"),
        reason=reason,
        faults=(*faults, *lacking),
    )


def _state(folder: Path, faults: list[str]) -> str:
    try:
        state = RunFolder(folder).state
    except (AttributeError, KeyError, TypeError):
        state = "failed"
        faults.append(f"{folder.name}/status.json does not say how the run stands; counted as failed")
    return state


def _mapping(path: Path, parse: Any, faults: list[str], expected: bool = True) -> dict[str, Any]:
    try:
        value = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if expected:
            faults.append(f"{path.parent.name}/{path.name} is missing")
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        faults.append(f"{path.parent.name}/{path.name} cannot be read")
        return {}
    if not isinstance(value, dict):
        faults.append(f"{path.parent.name}/{path.name} holds no names and values")
        return {}
    if excessive(value):
        faults.append(f"{path.parent.name}/{path.name} holds more than {MOST:,} values, or levels beyond {DEEPEST}")
        return {}
    return value


def excessive(value: Any) -> bool:
    """Whether a file holds more than any run writes: YAML can repeat or hold itself, at no length.

    >>> endless = {}; endless["more"] = endless
    >>> excessive({"workers": 4, "betas": [0.9, 0.99]}), excessive(endless), excessive([0] * 100_000)
    (False, True, True)
    """
    waiting, seen = [(value, 0)], 0
    while waiting and seen <= MOST:
        node, depth = waiting.pop()
        seen += 1
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple, set)) else ()
        if inner and depth >= DEEPEST:
            return True
        waiting += [(each, depth + 1) for each in inner]
    return seen > MOST


def _curve(path: Path, faults: list[str]) -> pd.DataFrame:
    """The evaluations in order. A last line that a crash cut off does not count; any other damage is a fault."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return pd.DataFrame()
    rows = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            row = json.loads(line)
            rows.append({"step": row["step"]} | row)
        except (ValueError, KeyError, TypeError):
            faults.append(f"{path.parent.name}/{path.name}: line {number} cannot be read")
    if not rows:
        return pd.DataFrame()
    return pd.DataFrame(rows).apply(pd.to_numeric, errors="coerce").drop_duplicates("step", keep="last")


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
        lines = path.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    except OSError:
        return ""
    indented = [i for i, line in enumerate(lines) if line.startswith(" ")]
    return "\n".join(lines[indented[-1] + 1 if indented else 0 :][-6:])
