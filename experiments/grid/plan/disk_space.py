"""Whether a store can be written and its disk has space for what cells will write, before anything runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.store import check_version


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
