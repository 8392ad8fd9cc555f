"""Where a command will write is tried before it measures or runs anything; nothing is left there by that."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def try_folder(option: str, path: Path | None) -> None:
    """Refuse a folder that cannot be written into, or made.

    Raises
    ------
    ValueError
        With what stands in the way.
    """
    if path is None:
        return
    place = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if not place.is_dir():
        raise ValueError(f"{option} must be a folder, got {path}: {place} is none; choose another")
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be written ({error.strerror or error}); choose another") from None


def try_file(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written.

    Raises
    ------
    ValueError
        With what stands in the way.
    """
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{option} must be a file, got the folder {path}; give it a name in there")
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{option} {path} cannot be written (it is read-only); choose another")
    try_folder(option, path.parent)
