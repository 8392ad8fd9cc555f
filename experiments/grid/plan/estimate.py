"""What a grid will cost, from the cells that are finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.store import FINISHED, RunFolder

KINDS: tuple[tuple[str, ...], ...] = (  # nearest first
    ("task", "workers", "nproc", "method"),
    ("task", "workers", "nproc"),
    ("task", "workers"),
    (),
)


def seconds_of(cell: Cell, per_step: Mapping[str, float]) -> float | None:
    """Seconds of a cell: its steps times the mean seconds a step of the finished cells that are most like it."""
    for kind in KINDS:
        seconds = per_step.get(_kind(cell.config, kind))
        if seconds is not None:
            return seconds * cell.config["steps"]
    return None


def rates(cells: Iterable[Cell]) -> dict[str, float]:
    """Mean wall-clock seconds a step of the finished cells, by what they have in common."""
    by_kind: dict[str, list[float]] = {}
    for cell in cells:
        folder = RunFolder(cell.folder)
        if folder.state not in FINISHED:
            continue
        status = folder.read("status.json")
        if status.get("step") and status.get("wall"):
            for kind in KINDS:
                by_kind.setdefault(_kind(cell.config, kind), []).append(status["wall"] / status["step"])
    return {kind: fmean(seconds) for kind, seconds in by_kind.items()}


def total(cells: Iterable[Cell], per_step: Mapping[str, float], jobs: int) -> float | None:
    """Seconds of all unfinished cells on `jobs` processes; None where nothing is known.

    A cell keeps as many of them busy as it has processes of its own; one of unknown length counts like the mean.
    """
    unfinished = [cell for cell in cells if not cell.finished]
    each = [seconds_of(cell, per_step) for cell in unfinished]
    estimates = [seconds for seconds in each if seconds is not None]
    if not estimates:
        return None
    filled = [fmean(estimates) if seconds is None else seconds for seconds in each]
    return sum(seconds * cell.slots(jobs) for seconds, cell in zip(filled, unfinished, strict=True)) / jobs


def _kind(config: Mapping[str, Any], parts: tuple[str, ...]) -> str:
    """

    >>> _kind({"workers": 2, "task": {"batch": 8, "seed": 1}}, ("workers", "task"))
    "[2, {'batch': 8}]"
    """
    chosen = [config[part] for part in parts]
    return str([{k: v for k, v in c.items() if k != "seed"} if isinstance(c, Mapping) else c for c in chosen])
