"""The data folder and the cache folder, and the one error for data that cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT = "COMMEFF_DATA"
CACHE = "COMMEFF_CACHE"


class DataError(ValueError):
    """A data file that is missing or cannot be used: which, where it was looked for, how to get it."""


def data_folder(data_dir: str | None, what: str, remedy: str) -> Path:
    """The folder to look for `what` in: data_dir, by default the environment variable COMMEFF_DATA.

    >>> data_folder("/srv/data", "a9a", "get it").name
    'data'
    """
    folder = data_dir or os.environ.get(ENVIRONMENT)
    if not folder:
        raise DataError(f"no data folder to look for {what}: set data_dir or {ENVIRONMENT}; {remedy}")
    return Path(folder).expanduser()


def cache_folder() -> Path:
    """Where what is made from data is kept: the environment variable COMMEFF_CACHE, by default ~/.cache/commeff."""
    return Path(os.environ.get(CACHE) or "~/.cache/commeff").expanduser()
