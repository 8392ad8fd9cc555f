"""The `commeff` command. Commands import their needs when they run, so that --help answers at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from commeff import __version__
from commeff.experiments.cli import (
    bandwidth,
    data,
    ending,
    exercise,
    figure,
    gain,
    grid,
    look,
    plan,
    reproduce,
    runs,
    scale,
    tools,
)
from commeff.experiments.cli.common import STUDIES, refusals
from commeff.experiments.cli.report import report_command

app = typer.Typer(
    name="commeff",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Communication-efficient data-parallel training: compression, gossip and local steps.

    `train` makes one run and `grid` many; `report` compares them. `list` and `show` describe the choices.

    Settings are `key=value` words: `task= model= method= compressor= topology= optimizer= schedule= workers= steps=
    seed= data_dir=`, and keys of a part, such as `optimizer.lr=0.05 compressor.ratio=0.01 method.period=4`.

    Exit codes: 0 success (a diverged run is a result), 1 a run failed or the output cannot be written, 2 wrong usage,
    3 outside tolerance, 130 interrupted, 141 the reader of the output is gone.
    """,
    epilog="Start with `commeff train method=dsgd topology=exponential`, `commeff list`, `commeff show method=choco`.",
)

COMMANDS: dict[str, Callable[..., None]] = {
    "train": runs.train,
    "grid": grid.grid,
    "status": grid.status,
    "report": report_command,
    "figure": figure.figure,
    "reproduce": reproduce.reproduce,
    "plan": plan.plan,
    "gain": gain.gain,
    "bandwidth": bandwidth.bandwidth,
    "list": look.list_choices,
    "show": look.show,
    "check": tools.check,
    "doctor": tools.doctor,
    "export": tools.export,
    "scale": scale.scale,
    "sys-info": look.system_information,
}
BENCHES = ("step", "mix", "processes", "tensor", "images", "store")  # in a checkout only, like `lab`


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"commeff {__version__}")
        raise typer.Exit


@app.callback()
def general(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    # no docstring, so that --help prints the application's
    pass


def only_from_a_checkout() -> None:
    """Available in a checkout of the repository only."""
    with refusals():
        import_module(STUDIES)


for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(tools.bench, name="bench")
app.add_typer(data.app, name="data")
app.add_typer(exercise.app, name="exercise")
try:
    import_module(f"{STUDIES}.commands").add(app, tools.bench)
except ModuleNotFoundError as error:
    if error.name != STUDIES:  # not part of a wheel
        raise
    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command("lab", context_settings=anything)(only_from_a_checkout)
    for name in BENCHES:
        tools.bench.command(name, context_settings=anything)(only_from_a_checkout)


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the console script: run a command (None: that of the command line), and exit."""
    sys.exit(ending.exit_code(app, words))
