"""One cell as a step of a SLURM job: srun starts its processes on the nodes of the job, and this process attends to it.

`commeff train` finds in the environment of each process which one it is. A signal to srun would end its processes at
once, without a checkpoint; `scancel --signal` reaches them, and leaves the job's script alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from experiments.grid.cell import GRACE, leave, to_log
from experiments.grid.cells import Cell
from experiments.store import RunFolder

JOB = "SLURM_JOB_ID"


def own_command() -> list[str]:
    """What starts this commeff: the script beside its interpreter, or the interpreter itself."""
    script = Path(sys.executable).with_name("commeff")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "experiments.cli"]


def job(environment: dict[str, str]) -> str:
    """The name of this job. Tasks of an array go by their numbers: the last one shares its job id with the array.

    >>> job({"SLURM_JOB_ID": "7"}), job({"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"})
    ('7', '7_2')
    """
    names = [environment.get(f"SLURM_ARRAY_{part}_ID", "") for part in ("JOB", "TASK")]
    return "_".join(names) if all(names) else environment[JOB]


def run_step(cell: Cell, plugins: Sequence[str], line: Connection) -> None:
    """Run a cell as a step; whatever comes over the line, or its end, means: stop with a checkpoint."""
    to_log(cell.folder)
    another = _another(cell, plugins)
    if another:
        _fail(cell, another)
    asks = [f"--ntasks={cell.processes}", f"--cpus-per-task={cell.config['threads']}", "--kill-on-bad-exit=1"]
    step = subprocess.Popen(["srun", *asks, *own_command(), *cell.words(cell.folder.parent, plugins)])
    threading.Thread(target=_listen, args=(line, step), daemon=True).start()
    code = step.wait()
    if code == 0 and not cell.finished:
        _fail(cell, "srun ended well but made no such run: commeff on the nodes is another version than here")
    told = RunFolder(cell.folder).state not in ("queued", "running")  # how it ended, by the run itself
    leave(cell.folder, 0 if told else code if 0 < code < 256 else 1)


def _fail(cell: Cell, why: str) -> NoReturn:
    run = RunFolder(cell.folder)
    with run.claimed() as own:
        if own:
            run.mark("failed", error=why)
    leave(cell.folder, 1)


def _another(cell: Cell, plugins: Sequence[str]) -> str:
    """What to say if the settings make another run here than where the grid was planned."""
    from experiments.config import compose
    from experiments.plugins import adopt
    from experiments.store import run_id

    run = run_id(compose([f"{key}={value}" for key, value in cell.settings.items()], adopt(plugins)[0]))
    return "" if run == cell.folder.name else f"its settings make {run} here: commeff or a plug-in is another version"


def _listen(line: Connection, step: subprocess.Popen[bytes]) -> None:
    with suppress(EOFError, OSError):
        line.recv()
    subprocess.run(["scancel", "--signal=TERM", job(dict(os.environ))], check=False)
    time.sleep(GRACE)
    step.kill()
