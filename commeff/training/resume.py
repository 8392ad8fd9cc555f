"""Where a run goes on from: its own last checkpoint, or another run's, on another mesh or with other workers."""

from __future__ import annotations

import logging
from pathlib import Path

from commeff.core.properties import own_pace
from commeff.training.checkpoint import Checkpoints
from commeff.training.documents import CheckpointRefused
from commeff.training.recorder import Recorder
from commeff.training.run import Run
from commeff.training.shared_checkpoints import SharedCheckpoints

LOG = logging.getLogger(__name__)
INSTEAD = "go on from another run, or begin anew"


def resume(
    run: Run, checkpoints: Checkpoints | None, recorder: Recorder | None, steps: int, origin: str | Path | None = None
) -> None:
    """Go on from the last checkpoint, if there is one, and drop the rows that were recorded after it.

    Every process calls it.

    Parameters
    ----------
    run : Run
        A run at step 0.
    checkpoints, recorder : Checkpoints, Recorder, optional
        Its own.
    steps : int
        Where it is to end.
    origin : path, optional
        The folder of another run, with its `checkpoints/` and its metrics.jsonl. Without a checkpoint of its own, the
        run goes on from where that one has come to, with the rows that it has recorded.

    Raises
    ------
    CheckpointRefused
        A checkpoint is of another run; the other run has none, or it is of another model, or with as many workers of
        another method.
    """
    resumed = checkpoints is not None and checkpoints.restore(run)
    if origin and not resumed:
        source = SharedCheckpoints(Checkpoints(Path(origin) / "checkpoints", instead=INSTEAD))
        if not source.restore(run):
            raise CheckpointRefused(f"{origin} must have a checkpoint, got none; {INSTEAD}")
    if 0 < run.step < steps:
        _check_clock(run)
    if origin and not resumed and recorder:
        recorder.begin(Recorder(origin).rows())
    if run.step > steps:
        raise ValueError(f"steps must be at least {run.step}, got {steps}: the checkpoint stands there")
    if recorder:
        known = [row["step"] for row in recorder.rows() if row["step"] <= run.step]
        if run.row and known[-1:] != [run.row.get("step")]:
            reason = f"{recorder.path} lacks rows that the checkpoint has"
            raise CheckpointRefused(f"{reason}; delete {recorder.path.parent} to start anew")
        recorder.rewind(run.step)  # what a killed run wrote after its last checkpoint will be written again
        if run.step:
            LOG.info("%s goes on from step %d", recorder.path.parent, run.step)


def _check_clock(run: Run) -> None:
    """Refuse to go on by a clock by which workers have taken other steps: they would exchange and draw amiss."""
    paced = own_pace(run.strategy)
    if run.event_clock is None or paced is None:
        return
    counts = [*run.event_clock.events(run.step)[0].counts]
    if counts and counts != paced.own.tolist():
        raise CheckpointRefused(
            "speeds must be those of the run that this one goes on from, got workers that have taken "
            f"{paced.own.tolist()} steps there and {counts} by the clock at step {run.step}; give its speeds and "
            "workers, or begin anew"
        )
