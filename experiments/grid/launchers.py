"""Where the cells of a grid run, and which options go with that.

local   on this machine, side by side; a cell of nproc > 1 starts its processes itself
srun    the same in a SLURM job, but srun starts the processes of a cell, on all nodes of the job
sbatch  later, in tasks of a SLURM job array
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from commeff.experiments.config.schema import ConfigError

LAUNCHERS = ("local", "srun", "sbatch")
REFUSED = {  # by sbatch
    "-j": "cells that run here; under sbatch array_limit and cells_per_task of the site file say how many run",
    "--minutes": "cells that run here; under sbatch the time of the site file ends a task, which goes on",
    "--max-failures": "one runner; the tasks of an array do not know of each other, so leave it out",
    "--collect": "what has run; leave --launcher out",
    "--dry-run": "cells that run here; leave --launcher out, the cells are the same",
}


def check(launcher: str, options: Sequence[str], inside: bool) -> None:
    """Refuse options that do not go with a launcher; `inside`: whether this is a SLURM job.

    >>> check("local", ["--emit"], inside=False)
    Traceback (most recent call last):
    commeff.experiments.config.schema.ConfigError: --emit goes with --launcher sbatch only; add it, or leave --emit out
    """
    faults = []
    if launcher not in LAUNCHERS:
        faults.append(
            f"no launcher {launcher!r}; choose from {', '.join(LAUNCHERS)} (local starts nproc processes itself)"
        )
    elif launcher == "sbatch":
        faults += [f"{option} goes with {REFUSED[option]}" for option in options if option in REFUSED]
        if "--emit" not in options and shutil.which("sbatch") is None:
            faults.append("--launcher sbatch: there is no sbatch on this machine; write the scripts with --emit FOLDER")
    else:
        faults += [
            f"{option} goes with --launcher sbatch only; add it, or leave {option} out"
            for option in options
            if option in ("--emit", "--site")
        ]
        if launcher == "srun" and not inside:
            faults.append("--launcher srun goes into a job that runs; begin one with salloc, or take --launcher sbatch")
        elif launcher == "srun" and shutil.which("srun") is None:
            faults.append("--launcher srun: there is no srun on this machine; load the module that has it")
    if faults:
        raise ConfigError(faults)
