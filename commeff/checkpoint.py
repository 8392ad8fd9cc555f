"""Checkpoints of a run: everything that decides the future, in one file written by rename."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch


class Checkpoints:
    """`folder/latest.pt`, replaced as a whole every `every` steps (0: only when a run is stopped).

    >>> import tempfile
    >>> checkpoints = Checkpoints(tempfile.mkdtemp(), every=10)
    >>> checkpoints.load() is None, checkpoints.due(9), checkpoints.due(10)
    (True, False, True)
    >>> checkpoints.save({"step": 10})
    >>> checkpoints.load()
    {'step': 10}
    """

    def __init__(self, folder: str | Path, every: int = 0) -> None:
        if every < 0:
            raise ValueError(
                f"a checkpoint every {every} steps was asked for; give a positive number, or 0 for none before the end"
            )
        self.path, self.every = Path(folder) / "latest.pt", every

    def due(self, step: int) -> bool:
        """Whether a checkpoint belongs after `step` steps."""
        return self.every > 0 and step % self.every == 0

    def save(self, state: dict[str, Any]) -> None:
        """Write the state so that a crash leaves either the old file or the new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        with draft.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.path)

    def load(self) -> dict[str, Any] | None:
        """The last saved state, or None before the first."""
        if not self.path.exists():
            return None
        try:
            return torch.load(self.path, weights_only=False)
        except Exception as error:  # a damaged file can raise anything at all
            raise ValueError(f"checkpoint {self.path} cannot be read ({error}); delete it to start anew") from error
