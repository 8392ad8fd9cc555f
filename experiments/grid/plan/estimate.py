"""What a grid will take: seconds, from the cells that are finished, and space on a disk that can be written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.store import RunFolder, check_version

STEP = ("task", "workers", "accumulate", "precision")  # what a step computes
KINDS: tuple[tuple[str, ...], ...] = (  # nearest first
    (*STEP, "nproc", "method"),
    (*STEP, "nproc"),
    STEP,
    ("task", "workers"),
    (),
)


def seconds_of(cell: Cell, per_step: Mapping[str, float]) -> float | None:
    """Seconds that a cell will still take: its steps left times the mean seconds a step of the cells most like it."""
    for kind in KINDS:
        seconds = per_step.get(_kind(cell.config, kind))
        if seconds is not None:
            begun = RunFolder(cell.folder).read("status.json").get("step", 0)
            return seconds * max(0, cell.config["steps"] - begun)
    return None


def rates(cells: Iterable[Cell]) -> dict[str, float]:
    """Mean wall-clock seconds a step of the cells that are finished or begun, by what they have in common."""
    by_kind: dict[str, list[float]] = {}
    for cell in cells:
        status = RunFolder(cell.folder).read("status.json")
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


def _kind(config: Mapping[str, Any], parts: tuple[str, ...]) -> str:
    """

    >>> _kind({"workers": 2, "task": {"batch": 8, "seed": 1}}, ("workers", "task"))
    "[2, {'batch': 8}]"
    """
    chosen = [config[part] for part in parts]
    return str([{k: v for k, v in c.items() if k != "seed"} if isinstance(c, Mapping) else c for c in chosen])
