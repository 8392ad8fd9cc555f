"""What cells will cost while none has run: a few steps of each kind of cell, in a folder that is thrown away."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from commeff.experiments.grid.plan.cells import KINDS, Cell, by_kind, kind_of
from commeff.experiments.run.progress import Stop

STEPS = 4  # of a trial: the first warms up, after the last is an evaluation
PATIENCE = 20.0  # seconds in which all trials are to be over; a step that has begun is waited for


def step_seconds(times: Sequence[float], every: int) -> float:
    """Seconds of a step with its share of the evaluations, which come every so many; `times`: when steps were over."""
    durations = [after - before for before, after in pairwise(times)]
    if len(durations) < STEPS:
        return fmean(durations[1:] or durations)
    step = fmean(durations[1:-1])
    return step + max(0.0, durations[-1] - step) / every


def tried(cells: Iterable[Cell]) -> tuple[dict[str, float], int]:
    """Seconds a step by what cells have in common, as `cells.rates` gives them; and how many cells were tried.

    Of each kind of cell one is tried, while there is time, on this process: a run of several processes counts as if
    its workers were simulated, and one that fails as if it had not been tried.
    """
    from commeff.experiments.run.runner import RunFailed, run_one  # with torch
    from commeff.training.settings import RunSettings

    timed: list[tuple[Cell, float]] = []
    end = time.monotonic() + PATIENCE
    for cell in {kind_of(cell.config, KINDS[0]): cell for cell in cells}.values():
        if time.monotonic() > end:
            break
        stop, times = Stop(), [time.monotonic()]

        def note(step: int, row: object, times: list[float] = times, stop: Stop = stop) -> None:
            times.append(time.monotonic())
            stop.requested = times[-1] > end

        config = dict(cell.config)
        config |= {"nproc": 1, "steps": STEPS, "evaluate_every": STEPS, "checkpoint_every": 0, "log": []}
        config |= {"resume_from": None}  # whose steps are more
        logging.disable(logging.WARNING)  # what is said of so few steps is not true of the cell
        with tempfile.TemporaryDirectory() as folder:
            try:
                summary = run_one(config, Path(folder) / "trial", note, stop)
            except (RunFailed, ValueError):
                continue
            finally:
                logging.disable(logging.NOTSET)
        if summary["state"] == "killed" and not stop.requested:
            raise KeyboardInterrupt
        if len(times) > 1:
            every = RunSettings(cell.config["steps"], cell.config["evaluate_every"]).rows_every
            timed.append((cell, step_seconds(times, every)))
    return by_kind(timed), len(timed)
