"""`commeff reproduce`: tables of papers, run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import (
    Json,
    Minutes,
    Plugins,
    Settings,
    adopted,
    complain,
    deadline,
    refusals,
    try_file,
    try_folder,
)
from commeff.experiments.cli.common import table as print_table
from commeff.experiments.escape import visible


def reproduce(
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="A name of --list, or your own table file, FILE.py.")
    ] = None,
    settings: Settings = None,
    scale: Annotated[str, typer.Option(help="smoke, reduced or full.")] = "full",
    list_tables: Annotated[bool, typer.Option("--list", help="List the tables that come with commeff.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Run nothing; print the cost.")] = False,
    store: Annotated[Path | None, typer.Option(help="One folder per run.  [default: runs/reproduce/TABLE]")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the page.  [default: STORE/pages/SCALE]")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Finished runs in one small file, FILE.tar.xz; its runs count as done, and new ones are added.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", help="Processes at a time.  [default: one per core]")
    ] = None,
    minutes: Minutes = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Run a paper's table, compare its numbers with ours, and judge each of its claims.

    * `commeff reproduce --list`
    * `commeff reproduce ef21_floor --scale smoke` one minute, to see that it runs; claims are not judged
    * `commeff reproduce ef21_floor data_dir=DATA` at full scale
    * `commeff reproduce mine.py --dry-run` your own table, which is executed: docs/reproduce.md
    * `commeff reproduce mine.py --plugin parts.py` with your own methods, compressors, topologies or tasks
    * `commeff reproduce qsgd_bits --scale reduced --records runs.tar.xz` with stored runs

    The same command resumes after a stop, also by --minutes. A claim holds, fails or is inconclusive; a number is ok,
    off, not comparable or inconclusive. The exit code is 3 if a claim fails or a number is off.
    """
    with refusals():
        from commeff.experiments.grid.local.scheduler import Limits
        from commeff.experiments.reproduce import command
        from commeff.experiments.run.system import cores

        if list_tables:
            rows = command.tables()
            if as_json:
                typer.echo(json.dumps(rows, indent=2))
            else:
                print_table([*rows[0]], [[*row.values()] for row in rows])
            return
        if table is None:
            raise ValueError("TABLE must be given: a name of `commeff reproduce --list`, or a file of your own")
        if jobs is not None and jobs < 1:
            raise ValueError(f"-j must be at least 1, got {jobs}")
        limits = Limits(jobs or cores(), deadline=deadline(minutes))
        plugins = tuple(plugin or ())
        arguments = command.Arguments(
            table, scale, store, out, limits, tuple(settings or ()), records, plugins, adopted(plugin)
        )
        arguments.check()
        try_folder("--store", arguments.place)
        try_folder("--out" if out else "--store", arguments.folder)
        try_file("--records", records)
        with command.no_trace(arguments.place, kept=not dry_run):
            if dry_run:
                typer.echo("\n".join(map(visible, command.dry_run(arguments))))
                return
            done = command.reproduce(arguments)
    if as_json:
        typer.echo(json.dumps({"page": str(done.page), "lines": done.lines, "exit_code": done.exit_code}, indent=2))
    else:
        for line in done.lines:
            typer.echo(visible(line))
        if done.page:
            typer.echo(f"page: {done.page}")
    for fault in done.faults:
        complain(fault)
    raise typer.Exit(done.exit_code)
