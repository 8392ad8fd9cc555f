"""Where a run comes from that goes on from another one's last checkpoint, on another mesh or with other workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from commeff.training.checkpoint import CheckpointRefused, Checkpoints
from commeff.training.mesh_checkpoints import MeshCheckpoints
from commeff.training.recorder import Recorder

if TYPE_CHECKING:
    from commeff.training.run import Run

INSTEAD = "go on from another run, or begin anew"


class Origin:
    """Another run. All processes of a run that goes on from it make it at once.

    Parameters
    ----------
    folder : path
        With its `checkpoints/`, by tensor, and its metrics.jsonl.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._checkpoints = MeshCheckpoints(Checkpoints(self._folder / "checkpoints"), INSTEAD)

    def restore(self, run: Run) -> None:
        """Let a run go on from the last checkpoint; every process calls it.

        Raises
        ------
        CheckpointRefused
            There is none, or it is of another model, or with as many workers of another method.
        """
        if not self._checkpoints.restore(run):
            raise CheckpointRefused(f"{self._folder} must have a checkpoint by tensor, got none; {INSTEAD}")

    def rows(self) -> list[dict[str, Any]]:
        """What it has recorded."""
        return Recorder(self._folder).rows()
