"""A trace of some steps of a run: what each operator, kernel and message took, for Perfetto or chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.profiler import profile, schedule

from commeff.experiments.run.progress import Progress
from commeff.files import appearing

WARM = 10  # steps before the first one that is traced


@contextmanager
def traced(progress: Progress, path: Path, steps: int) -> Iterator[Progress]:
    """The same progress, which counts steps: so many after the tenth are traced, or fewer, if the run ends before.

    Parameters
    ----------
    progress : is called after every step.
    path : of the file, which replaces another one there.
    steps : to trace.
    """

    def write(profiler: profile) -> None:
        with appearing(path) as draft:
            profiler.export_chrome_trace(str(draft))

    with profile(schedule=schedule(wait=WARM - 1, warmup=1, active=steps, repeat=1), on_trace_ready=write) as profiler:

        def after(step: int, row: dict[str, Any]) -> None:
            progress(step, row)
            profiler.step()

        yield after
