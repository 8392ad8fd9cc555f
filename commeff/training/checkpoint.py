"""Checkpoints of a run: everything that decides the future, in one file written by rename, and the one before it."""

from __future__ import annotations

import logging
import os
import zipfile
from pathlib import Path
from typing import Any

import torch

LOG = logging.getLogger(__name__)


class Checkpoints:
    """`folder/latest.pt`, replaced as a whole every `every` steps (0: only when a run is stopped).

    The one that it replaces stays as `previous.pt`: a disk can damage a file that was written well.

    >>> import tempfile
    >>> checkpoints = Checkpoints(tempfile.mkdtemp(), every=10)
    >>> checkpoints.load() is None, checkpoints.due(9), checkpoints.due(10)
    (True, False, True)
    >>> checkpoints.save({"step": 10}); checkpoints.save({"step": 20})
    >>> checkpoints.load()
    {'step': 20}
    >>> _ = checkpoints.path.write_bytes(b"torn")
    >>> checkpoints.load()
    {'step': 10}
    """

    def __init__(self, folder: str | Path, every: int = 0) -> None:
        if every < 0:
            raise ValueError(
                f"every must be at least 0, got {every}: it counts steps between checkpoints; 0 is none before the end"
            )
        self.path, self.previous, self.every = Path(folder) / "latest.pt", Path(folder) / "previous.pt", every

    def due(self, step: int) -> bool:
        """Whether a checkpoint belongs after `step` steps."""
        return self.every > 0 and step % self.every == 0

    def save(self, state: dict[str, Any]) -> None:
        """Write the state so that a crash at any point leaves a whole file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        try:
            with draft.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
        except BaseException as error:
            draft.unlink(missing_ok=True)  # a full disk needs the room
            if isinstance(error.__context__, OSError):  # torch then complains of the file that it could not finish
                raise error.__context__ from None
            raise
        if self.path.exists():
            os.replace(self.path, self.previous)
        os.replace(draft, self.path)

    def load(self) -> dict[str, Any] | None:
        """The last saved state, None before the first. A damaged one is told of, and the one before it is taken."""
        faults: list[str] = []
        for path in filter(Path.exists, (self.path, self.previous)):
            try:
                state = _read(path)
            except Exception as error:  # a damaged file can raise anything at all
                faults.append(f"checkpoint {path} cannot be read ({' '.join(str(error).split())})")
                continue
            if faults:
                LOG.warning("%s; going on from %s", faults[0], path.name)
            return state
        if faults:
            raise ValueError(f"{' and '.join(faults)}; delete {self.path.parent} to start anew")
        return None


def _read(path: Path) -> dict[str, Any]:
    """A checkpoint whose checksums are right, which torch does not look at."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise ValueError(f"the checksum of {damaged} is wrong")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=False)
    return state
