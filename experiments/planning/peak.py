"""The most memory of a run's first process, from its own code, played on tensors that take none.

Beside what lives at once, a process has holes. glibc's cache of a thread holds up to seven cut ends of each size, and a
freed block beside one is too small for the next tensor (`commeff.compressors.scratch.keep_freed_memory`). Temporaries
of three rows beside a row took 6.1 rows after 4 steps, and no more after 24; with glibc.malloc.tcache_count=0 they took
4.2. How many ends lie there depends on the rest of the process, so HOLES is assumed: measured holes were 0.4 to 1.5.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from commeff.communicator import Communicator
from commeff.core.strategy import Strategy
from commeff.experiments.tasks.shapes import shapes_only
from commeff.profiling import Profile
from commeff.profiling.live import preserved
from commeff.profiling.peak import Peak
from commeff.profiling.rehearsal import Blank
from commeff.replicas.stacked import engine_in
from commeff.training.evaluation import measure_final
from commeff.training.on_device import OnDevice
from commeff.training.run import Run
from commeff.training.run_state import collect
from commeff.training.task import Task

HOLES = 0.5  # of the bytes that come and go


def resident() -> tuple[int, int]:
    """Bytes of this process in memory: now, and the most so far. The latter stands for both where nothing tells."""
    unit = 1 if sys.platform == "darwin" else 1024
    most = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = Path("/proc/self/statm")
    return (int(pages.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") if pages.exists() else most), most


class _Shapes(OnDevice):
    """The task with models that have no numbers."""

    def model(self) -> nn.Module:
        with shapes_only():
            return self._task.model()


def most_bytes(config: Mapping[str, Any], task: Task, strategy: Strategy, found: Profile, held: int) -> int | None:
    """Bytes that the first process has at once beside its data: of models, steps, evaluations and checkpoints. One step
    of each kind is played, of all workers. None where that needs numbers.

    Parameters
    ----------
    config : of a run whose workers are whole models.
    task, strategy : its own.
    found : the profile of the strategy.
    held : bytes that stay between two steps.
    """
    n, nproc = config["workers"], config["nproc"]
    transport = Blank(nproc, 0) if nproc > 1 else None
    communicator = Communicator(n, config["seed"], collective=config["collective"], transport=transport)
    played = _Shapes(task, "meta")
    try:
        with preserved(strategy), Peak() as peak:
            make = engine_in(config["precision"], config["engine"])
            run = Run.start(make(played.model, communicator.workers, config["seed"]), strategy, communicator)
            batches = run.draw(played)
            gradient = run.gradient(played.loss, batches, config["l2"])
            for communicator.step in _steps(found, config["steps"]):
                run.update(played, batches, gradient, config["l2"])
            del batches
            run.record(played, None)
            measure_final(played, run.replicas, communicator, {})
            collect(run)
    except (NotImplementedError, RuntimeError, TypeError):
        return None
    return round(peak.most + HOLES * max(0, peak.most - held))


def _steps(found: Profile, steps: int) -> list[int]:
    """The first two steps, and the first of each kind of those that follow."""
    kinds = {tuple(op[1:5] for op in found.steps[step]): step for step in sorted(found.steps, reverse=True)}
    return sorted(step for step in {0, 1, *kinds.values()} if step < steps)
