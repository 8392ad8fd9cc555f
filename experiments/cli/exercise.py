"""Commands for the exercises of a lecture: exercise list, exercise new, exercise grade."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import Json, refusals, report

app = typer.Typer(
    no_args_is_help=True,
    help="""Ten exercises with a page and a stub each, and a grader.

    * `commeff exercise list`
    * `commeff exercise new ef_sgd` writes ef_sgd.py
    * `commeff exercise grade ef_sgd.py`
    """,
)


@app.command("list")
def list_exercises(as_json: Json = False) -> None:
    """List the exercises with their titles."""
    from commeff.experiments.exercises.stubs import NAMES, title

    report({name: title(name) for name in NAMES}, as_json)


@app.command()
def new(name: Annotated[str, typer.Argument(help="An exercise; `commeff exercise list` names them.")]) -> None:
    """Write NAME.py into this folder: the page as its docstring, and the stub. An existing file is never overwritten.

    * `commeff exercise new ef_sgd`
    """
    with refusals():
        from commeff.experiments.exercises.stubs import write_stub

        file = write_stub(name, Path())
    typer.echo(f"{file}: read it, complete it, then run commeff exercise grade {file}")


@app.command()
def grade(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of any name, with the functions of the stub.")],
    as_json: Json = False,
) -> None:
    """Grade FILE by the laws of its exercise, with one line per law; the exit code is 1 if one is broken.

    * `commeff exercise grade ef_sgd.py`

    A broken law prints the expected and the actual value. The file is executed with your rights. Its functions have
    10 seconds per law.
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
