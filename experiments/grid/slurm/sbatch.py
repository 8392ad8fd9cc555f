"""A grid for SLURM: its cells and scripts in a folder, and the folder handed to sbatch."""

from __future__ import annotations

import shlex
import subprocess
from itertools import count
from pathlib import Path

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.command import Request, describe, prepare
from commeff.experiments.grid.local.srun_step import own_command
from commeff.experiments.grid.plan.cell_list import CellList, write_cells
from commeff.experiments.grid.slurm.script import array, collect, shapes, submit
from commeff.experiments.grid.slurm.site import Site
from commeff.files import rewrite, unlinked


def emit(request: Request, site: Site, folder: Path | None, reports: bool) -> tuple[Path | None, str]:
    """Write the cells that are not finished, and the scripts that run them; nothing is submitted.

    A folder is written once: SLURM reads a script when it is submitted, but tasks read their cells when they begin.

    Returns
    -------
    folder, words : where the scripts lie (None: there is nothing to run), and what they are for.
    """
    place = _folder(folder, request)
    cells, chosen = prepare(request)
    unfinished = tuple(cell for cell in chosen if not cell.finished)
    if not unfinished:
        return None, f"all {len(chosen)} cells are finished; nothing to submit"
    arrays = shapes(unfinished, site)
    title = describe(request, cells)
    place.mkdir(parents=True, exist_ok=True)
    write_cells(place / "cells.jsonl", CellList(request.name, title, request.place, unfinished))
    command = site.command or shlex.join(own_command())
    absolute = [str(Path(plugin).absolute()) if plugin.endswith(".py") else plugin for plugin in request.plugins]
    plugins = [f"--plugin {shlex.quote(plugin)}" for plugin in absolute]
    limit = [*plugins, *([f"--timeout {request.limits.timeout:g}"] if request.limits.timeout else [])]
    for shape in arrays:
        _script(place / shape.name, array(shape, site, title, place, command, limit))
    _script(place / "collect.sh", collect(site, place, command, [*plugins, *([] if reports else ["--no-report"])]))
    _script(place / "submit.sh", submit([shape.name for shape in arrays], place))
    (place / "logs").mkdir()
    kinds = ", ".join(f"{shape.name} ({shape.cells} cells in {shape.tasks} tasks)" for shape in arrays)
    return place, f"{len(chosen)} cells, {len(chosen) - len(unfinished)} finished; {kinds}"


def hand_in(folder: Path) -> str:
    """Submit the scripts of a folder; returns what SLURM prints."""
    submission = subprocess.run([str(folder / "submit.sh")], capture_output=True, text=True, check=False)
    if submission.returncode:
        reasons = submission.stderr.strip().splitlines() or [f"exit code {submission.returncode}"]
        earlier = f"; submitted before: {', '.join(submission.stdout.splitlines())}" if submission.stdout else ""
        raise ConfigError([f"sbatch refused: {reasons[-1]}; the scripts are in {folder}{earlier}"])
    return submission.stdout.strip()


def _folder(folder: Path | None, request: Request) -> Path:
    """The given folder, or the next free one in the store; nothing is made."""
    if "\n" in str((folder or request.place).absolute()):
        raise ConfigError(["a folder with a line break in its name cannot stand in a script; choose another"])
    if folder is None:
        home = unlinked(request.place / "slurm")
        folder = next(place for place in (home / f"{request.name}-{i}" for i in count(1)) if not place.exists())
    elif folder.is_dir() and any(folder.iterdir()):
        raise ConfigError([f"--emit {folder}: the folder is not empty; tasks may read it still, so choose another"])
    return folder.absolute()


def _script(path: Path, text: str) -> None:
    rewrite(path, text)
    path.chmod(0o755)
