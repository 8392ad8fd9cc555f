"""Settings that depend on the machine, such as relative paths, are resolved before the run's name is computed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MISSING = "???"  # what stands for a value that has to be given


class Settled(ABC):
    """A task that reads files: a relative path, or "whatever is there", is settled when its settings are composed.

    The run's name and config.yaml have what was found, so a run of one copy of the data is never taken for a run of
    another, and goes on from any folder.
    """

    @classmethod
    @abstractmethod
    def settled(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings as they are meant here. What cannot be found stays as it is: the constructor says what lacks."""


def from_here(path: str, exists: Callable[[Path], bool]) -> str:
    """A path relative to where the command is typed as an absolute one, if it is there; any other as it is.

    >>> from_here("/srv/photos", Path.is_dir), from_here("surely not here", Path.is_dir)
    ('/srv/photos', 'surely not here')
    """
    if path == MISSING or Path(path).expanduser().is_absolute() or not exists(Path(path)):
        return path
    return os.path.abspath(path)
