"""Commands on many runs: grid, status."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commeff.experiments.cli.common import (
    Json,
    Minutes,
    Plugins,
    Settings,
    adopted,
    deadline,
    refusals,
    report,
    try_folder,
)
from commeff.experiments.cli.report import show
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.escape import one_line

if TYPE_CHECKING:
    from commeff.experiments.grid.command import Request

LAUNCHERS = ("local", "srun", "sbatch")
REFUSED = {  # by sbatch
    "-j": "cells that run here; under sbatch array_limit and cells_per_task of the site file say how many run",
    "--minutes": "cells that run here; under sbatch the time of the site file ends a task, which goes on",
    "--max-failures": "one runner; the tasks of an array do not know of each other, so leave it out",
    "--collect": "what has run; leave --launcher out",
    "--dry-run": "cells that run here; leave --launcher out, the cells are the same",
}

File = Annotated[Path, typer.Argument(metavar="FILE", help="A grid file, see below.")]


def grid(
    file: File,
    settings: Settings = None,
    store: Annotated[Path | None, typer.Option(help="One folder per run.  [default: runs/NAME]")] = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", help="Processes at a time.  [default: one per core]")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds per cell; 0: no limit.")] = 0.0,
    minutes: Minutes = None,
    max_failures: Annotated[
        int, typer.Option(help="Start no more cells after this number of failures; 0: no limit.")
    ] = 0,
    only: Annotated[
        list[str] | None, typer.Option(help="Cells with key=value, in a state, or a run; may be repeated.")
    ] = None,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="Every N-th cell, from the I-th.")] = None,
    collect: Annotated[bool, typer.Option("--collect", help="Run nothing; count and report finished cells.")] = False,
    max_cells: Annotated[int, typer.Option(help="Refuse a grid with more cells.", min=1, max=1_000_000)] = 10_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Run nothing; list the cells and their cost.")] = False,
    report_at_end: Annotated[bool, typer.Option("--report/--no-report", help="Write STORE/report at the end.")] = True,
    launcher: Annotated[str, typer.Option(help="Where cells run: local, srun or sbatch.")] = "local",
    site: Annotated[
        Path | None, typer.Option(help="File on a SLURM cluster, for sbatch.  [default: see below]")
    ] = None,
    emit: Annotated[
        Path | None, typer.Option(help="Write the scripts for sbatch into this folder, without submitting.")
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Run the unfinished cells of a grid file in parallel, each in its own process.

    * `commeff grid experiments/grids/demo.yaml`
    * `commeff grid mine.yaml steps=50 --dry-run` settings replace those of the file's base
    * `commeff grid mine.yaml --only method=dsgd --only failed`
    * `commeff grid mine.yaml --shard 1/4` on one of four machines, then `--collect`
    * `commeff grid mine.yaml --launcher sbatch` submits a SLURM job array; `--emit FOLDER` only writes it

    A grid is a union of products: each entry of `grid` expands its lists, and each combination runs with every seed.

        base: {task: digits, workers: 16}
        seeds: [0, 1, 2]
        grid:
          - {method: psgd, optimizer.lr: [0.4, 0.8]}
          - {method: dsgd, topology: [ring, exponential], optimizer.lr: [0.4, 0.8]}
        exclude: [{topology: ring, optimizer.lr: 0.4}]
        select: {over: optimizer.lr, by: val_accuracy}

    The same command skips finished cells and resumes the others from their checkpoints. Two commands on one store share
    the work. Ctrl-C stops with checkpoints; a second Ctrl-C stops at once. A failed cell does not stop the others. A
    cell with `nproc=4` takes four of the `-j` processes, and runs alone if `-j` is smaller. With device=cuda, parallel
    cells are distributed over the GPUs; `-j` is their number, also if several share a GPU.

    On SLURM, a site file describes the jobs (partition, time, modules, ...): `--site`, else the environment variable
    COMMEFF_SITE, else ~/.config/commeff/site.yaml; experiments/sites/example.yaml shows every key. Tasks stop with
    checkpoints before their time limit and are requeued; a last job reports. Inside a job of several nodes,
    `--launcher srun` spreads the processes of each cell over them.
    """
    with refusals():
        from commeff.experiments.grid import command
        from commeff.experiments.grid.local.scheduler import Limits, as_step
        from commeff.experiments.run.system import cores

        options: dict[str, object] = {"-j": jobs, "--max-failures": max_failures, "--collect": collect}
        options |= {"--dry-run": dry_run, "--emit": emit, "--site": site}
        used_options = [option for option, value in options.items() if value]
        if launcher != "local" or emit or site:
            check_launcher(launcher, used_options, "SLURM_JOB_ID" in os.environ)
        limits = Limits(cores() if jobs is None else jobs, timeout, max_failures, deadline(minutes))
        launch = as_step if launcher == "srun" else None
        request = command.Request(
            file, settings or [], store, plugin or [], adopted(plugin), only or [], shard, limits, launch, max_cells
        )
        command.check(request)
        if launcher == "sbatch":
            _submit(request, site, emit, report_at_end, as_json)
            return
        if dry_run:
            rows, cost = command.dry_run(request)
            typer.echo(json.dumps(rows, indent=2) if as_json else table(rows))
            typer.echo(cost, err=True)
            return
        outcome = command.collect(request) if collect else command.run(request)
    typer.echo(", ".join(f"{count} {state}" for state, count in outcome.counts.items()), err=True)
    if outcome.left:
        typer.echo(command.standing(outcome.cells, request.limits.jobs), err=True)
    if report_at_end and not outcome.interrupted and not outcome.left:
        with refusals():
            from commeff.experiments.report.write.writing import write_report

            show(write_report(request.place, grid=request.name), as_json)
    elif as_json:
        typer.echo(json.dumps({"store": str(request.place), **outcome.counts}, indent=2))
    if outcome.interrupted:
        typer.echo("interrupted; the same command goes on", err=True)
    raise typer.Exit(outcome.exit_code)


def check_launcher(launcher: str, options: Sequence[str], inside: bool) -> None:
    """Refuse options that do not go with a launcher; `inside`: whether this is a SLURM job.

    >>> check_launcher("local", ["--emit"], inside=False)
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


def _submit(request: Request, site: Path | None, folder: Path | None, reports: bool, as_json: bool) -> None:
    """Write the scripts of a job array, and submit them unless --emit names a folder."""
    from commeff.experiments.grid.slurm.site import find_site

    try_folder("--emit", folder)
    described, where = find_site(site)

    from commeff.experiments.grid.slurm.sbatch import emit, hand_in

    place, words = emit(request, described, folder, reports)
    typer.echo(f"{where}\n{words}", err=True)
    if place is None:
        return
    jobs = hand_in(place) if folder is None else ""
    if as_json:
        typer.echo(json.dumps({"folder": str(place), "jobs": jobs.splitlines()}, indent=2))
    else:
        typer.echo(jobs or f"nothing is submitted; {place / 'submit.sh'} does that")


def table(rows: list[dict[str, Any]]) -> str:
    """The cells of a dry run, one line each.

    >>> print(table([{"cell": 1, "what": "psgd seed 0", "state": "queued", "seconds": 2.5, "run": "psgd-digits-0"}]))
       1  queued    about 2.5 s  psgd seed 0  psgd-digits-0
    """
    from commeff.experiments.grid.local.view import clock

    lines = []
    for row in rows:
        seconds = f"about {clock(row['seconds'])}" if row["seconds"] else ""
        lines.append(f"{row['cell']:>4}  {row['state']:<8}  {seconds:>11}  {one_line(str(row['what']))}  {row['run']}")
    return "\n".join(lines)


def status(
    store: Annotated[Path, typer.Argument(metavar="STORE")] = Path("runs"),
    everything: Annotated[bool, typer.Option("--all", help="Also list finished and waiting cells.")] = False,
    as_json: Json = False,
) -> None:
    """Show the state of the runs in a store: how many are done, which are running, and which failed and why.

    * `commeff status runs/demo`
    """
    with refusals():
        from commeff.experiments.grid.status import print_status
        from commeff.experiments.grid.status import status as standing

        states = standing(store)
    if as_json:
        report(states, as_json)
    else:
        print_status(states, everything)
