"""Commands for a lecture's exercises: exercise list, exercise new, exercise grade."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import Json, refusals, report

app = typer.Typer(
    no_args_is_help=True,
    help="""Ten exercises: a page and a stub for each, and laws that grade what was written.

    * `commeff exercise list`
    * `commeff exercise new ef_sgd` writes ef_sgd.py
    * `commeff exercise grade ef_sgd.py`
    """,
)


@app.command("list")
def list_exercises(as_json: Json = False) -> None:
    """List the exercises, with a line on each."""
    from commeff.experiments.exercises.stubs import NAMES, title

    report({name: title(name) for name in NAMES}, as_json)


@app.command()
def new(name: Annotated[str, typer.Argument(help="An exercise; `commeff exercise list` names them.")]) -> None:
    """Write NAME.py into this folder: the page as its docstring, and the stub. Nothing is overwritten.

    * `commeff exercise new ef_sgd`
    """
    with refusals():
        from commeff.experiments.exercises.stubs import write_stub

        file = write_stub(name, Path())
    typer.echo(f"{file}: read it, write it, then commeff exercise grade {file}")


@app.command()
def grade(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Of any name; its functions have those of the stub.")],
    as_json: Json = False,
) -> None:
    """Run the laws of an exercise on FILE, a line for each; exit code 1 if one is broken.

    * `commeff exercise grade ef_sgd.py`

    A broken law's line says what was expected and what came, and which mistake gives the same, if a known one does. The
    file is executed here; its functions have 10 seconds for each law.
    """
    with refusals():
        from commeff.experiments.exercises.stubs import answered

        answered(file)

        from commeff.experiments.exercises.grade import grade as judge

        verdicts = judge(file)
    broken = [verdict for verdict in verdicts if verdict.state == "broken"]
    if as_json:
        typer.echo(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    else:
        for verdict in verdicts:
            words = f"BROKEN {verdict.law}: {verdict.sentence}" if verdict in broken else f"holds {verdict.law}"
            typer.echo(f"{verdict.name}: {words}")
        typer.echo(f"{len(verdicts) - len(broken)} of {len(verdicts)} laws hold")
    raise typer.Exit(1 if broken else 0)
