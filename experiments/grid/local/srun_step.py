"""One cell as a step of a SLURM job: srun starts its processes on the nodes of the job, and this process watches it.

`commeff train` reads in the environment of each process which one it is. A signal to srun would end its processes at
once, without a checkpoint; `scancel --signal` reaches them, and leaves the job's script and other steps alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.local.cell import GRACE, leave, to_log
from commeff.experiments.grid.local.server import describe_exit
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.spec import words_of
from commeff.experiments.run.orphans import end_with_parent
from commeff.experiments.run.progress import Stop
from commeff.experiments.run.store import RunFolder

JOB = "SLURM_JOB_ID"


def own_command() -> list[str]:
    """The command that starts this commeff: the script beside its interpreter, or the interpreter itself."""
    script = Path(sys.executable).with_name("commeff")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "commeff"]


def job(environment: Mapping[str, str]) -> str:
    """The name of this job. Tasks of an array go by their numbers: the last one shares its job id with the array.

    >>> job({"SLURM_JOB_ID": "7"}), job({"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"})
    ('7', '7_2')
    """
    names = [environment.get(f"SLURM_ARRAY_{part}_ID", "") for part in ("JOB", "TASK")]
    return "_".join(names) if all(names) else environment[JOB]


def started_step(run: RunFolder, environment: Mapping[str, str]) -> str | None:
    """The step of this job that runs the run, as scancel names it; None as long as there is none."""
    number, _, step = str(run.read("env.json").get("job", "")).partition(".")
    return f"{job(environment)}.{step}" if step and number == environment[JOB] else None


def run_step(cell: Cell, plugins: Sequence[str], connection: Connection) -> None:
    """Run a cell as a step; any message over the connection, or its end, means: stop with a checkpoint."""
    to_log(cell.folder)
    if difference := _difference(cell, plugins):
        _fail(cell, difference)
    run, stop = RunFolder(cell.folder), Stop()
    before = run.read("status.json")
    resources = [f"--ntasks={cell.processes}", f"--cpus-per-task={cell.config['threads']}", "--kill-on-bad-exit=1"]
    step = subprocess.Popen(
        ["srun", *resources, *own_command(), *cell.words(plugins)],
        preexec_fn=_end_with_us,  # no other thread is there yet
    )
    threading.Thread(target=_stop_on_message, args=(connection, run, step, stop), daemon=True).start()
    code = step.wait()
    if code == 0 and not cell.finished:
        _fail(cell, "srun ended well but made no such run: commeff on the nodes is another version than here")
    if code and run.read("status.json") == before and not stop.requested:
        _fail(cell, f"srun {describe_exit(code)} before the run began; log.txt says why")
    recorded = run.state not in ("queued", "running")  # the run has written how it ended
    leave(cell.folder, 0 if recorded else code if 0 < code < 256 else 1)


def _end_with_us() -> None:
    """Handle SIGTERM in srun's process, which this process ignores, and end srun with this process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(signal.SIGTERM)


def _fail(cell: Cell, why: str) -> NoReturn:
    RunFolder(cell.folder).fail(why)
    leave(cell.folder, 1)


def _difference(cell: Cell, plugins: Sequence[str]) -> str:
    """Why the settings make another run here than where the grid was planned; '' if they do not."""
    from commeff.experiments.config.compose import compose
    from commeff.experiments.config.plugins import adopt
    from commeff.experiments.run.naming import run_id

    try:
        run = run_id(compose(words_of(cell.settings), adopt(plugins)[0]))
    except ConfigError as error:
        return str(error)
    return "" if run == cell.folder.name else f"its settings make {run} here: commeff or a plug-in is another version"


def _stop_on_message(connection: Connection, run: RunFolder, step: subprocess.Popen[bytes], stop: Stop) -> None:
    with suppress(EOFError, OSError):
        connection.recv()
    stop.requested = True
    step_name = started_step(run, os.environ)
    if step_name is not None:
        subprocess.run(["scancel", "--signal=TERM", step_name], check=False)
        time.sleep(GRACE)
    step.terminate()
