"""Whether a store can take what cells will write: asked before anything runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.store import check_version


def check_room(store: Path, cells: Sequence[Cell], jobs: int) -> None:
    """Refuse cells whose checkpoints the disk cannot take; each is written anew before the old one goes."""
    sizes = [cell.checkpoint for cell in cells if not cell.finished]
    needed, free = sum(sizes) + jobs * max(sizes, default=0), shutil.disk_usage(_there(store)).free
    if free < needed:
        raise ConfigError(
            [
                f"store {store} has {free / 1e6:,.1f} MB free but the checkpoints of the cells take "
                f"{needed / 1e6:,.1f} MB; free some space or choose another --store"
            ]
        )


def _there(store: Path) -> Path:
    """The store, or the folder in which it would be made."""
    return next(place for place in (store, *store.absolute().parents) if os.path.lexists(place))


def store_faults(store: Path) -> list[str]:
    """Why nothing can be written into the store."""
    there = _there(store)
    if not there.is_dir():
        return [f"store {store}: {there} is no folder; choose another --store"]
    try:
        check_version(store)
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(os.urandom(1 << 16))
            probe.flush()
            os.fsync(probe.fileno())
    except ConfigError as error:
        return list(error.faults)
    except OSError as error:
        return [f"store {store} cannot be written ({error.strerror or error}); choose another --store"]
    return []
