"""`commeff bench store`: how long it takes to plan, list and report thousands of runs that nobody trained.

CPU seconds, since these commands wait for nothing; each is a process of its own and imports what it needs.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.synthetic_store import make_store, write_grid
from commeff.files import private_folder

RUNS = 5000
STATUS, REPORT, CELL = 2.0, 20.0, 0.010  # CPU seconds: of a listing, of a report, and of planning a cell


def run(runs: int = RUNS) -> list[MeasuredRatio]:
    """CPU seconds of `commeff` on a store of so many runs."""
    with private_folder() as folder:
        file, grid, train = write_grid(Path(folder), runs), Path(folder, "grid"), Path(folder, "train")
        make_store(grid, file, runs)
        shutil.copytree(grid, train)
        shutil.rmtree(train / "grids")  # what is left is as if every run had been made by `commeff train`
        planned = ["grid", str(file), "--dry-run", "--json", "--store"]
        seconds = {
            "grid --dry-run, nothing finished": cpu_seconds([*planned, str(Path(folder, "none"))]) / runs,
            "grid --dry-run, all finished": cpu_seconds([*planned, str(grid)]) / runs,
            "status": cpu_seconds(["status", str(grid)]),
            "report of a grid": cpu_seconds(["report", str(grid), "--json"]),
            "report of trained runs": cpu_seconds(["report", str(train), "--json"]),
        }
    limits = {"grid": ("CPU s a cell", CELL), "status": ("CPU s", STATUS), "report": ("CPU s", REPORT)}
    return [
        MeasuredRatio(f"{runs} runs", f"{what}, {unit}", value, at_most=most)
        for what, value in seconds.items()
        for unit, most in [limits[what.split()[0]]]
    ]


def cpu_seconds(words: Sequence[str]) -> float:
    """User and system seconds of a command of commeff, with those of the processes it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run([sys.executable, "-m", "commeff", *words], stdout=subprocess.DEVNULL)
    if ended.returncode:
        raise RuntimeError(f"`commeff {' '.join(words)}` ended with exit code {ended.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
