"""The `commeff` command. Commands import what they need when they run, so that --help answers at once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from experiments.plugins import Choice

app = typer.Typer(
    name="commeff",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Communication-efficient data-parallel training: compression, gossip, local steps, on simulated workers.

    Settings are `key=value` words: `task= model= method= compressor= topology= optimizer= schedule= workers= steps=
    seed= data_dir=`, and dotted keys inside a part, such as `optimizer.lr=0.05 compressor.ratio=0.01 method.period=4`.

    Exit codes: 0 good (a diverged run is a result), 1 a run failed, 2 bad usage, 3 outside tolerance, 130 interrupted.
    """,
    epilog="Begin with `commeff train method=dsgd topology=exponential`, `commeff list`, `commeff show method=choco`.",
)

Settings = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False)]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        show_default=False,
        help="A file or module of your own; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Store = Annotated[Path, typer.Option("--store", help="The folder that holds one folder a run.")]


@app.command()
def train(
    settings: Settings = None, store: Store = Path("runs"), plugin: Plugins = None, as_json: Json = False
) -> None:
    """Train one method on one task.

    * `commeff train method=mem_sgd compressor=top_k compressor.ratio=0.01 optimizer.lr=0.1`
    * `commeff train method=dsgd topology=ring workers=32 task.alpha=0.1 model=cnn`
    * `commeff train --plugin mine.py method=mine method.period=3`

    A finished run is not repeated, and Ctrl-C stops with a checkpoint: the same command goes on, to the same end.
    """
    with refusals():
        from experiments.config import compose

        config = compose(settings or [], adopted(plugin))

        from experiments.progress import reporter
        from experiments.runner import RunFailed, run_one
        from experiments.store import FINISHED, RunFolder, finite, run_id

        folder = store / run_id(config)
        if RunFolder(folder).state in FINISHED:
            typer.echo(f"{folder} is finished already; its summary:", err=True)
        try:
            with reporter(config["steps"], folder) as progress:
                summary = run_one(config, folder, progress)
        except RunFailed as error:
            typer.echo(f"commeff: {error}", err=True)
            raise typer.Exit(1) from None
    report({"run": str(folder), **{name: finite(value) for name, value in summary.items()}}, as_json)
    if summary["state"] == "killed":
        typer.echo(
            f"interrupted at step {summary['steps']} with a checkpoint; the same command goes on from there", err=True
        )
        raise typer.Exit(130)


@app.command("list")
def list_choices(
    group: Annotated[
        str | None, typer.Argument(help="task, method, compressor, topology, optimizer or schedule.")
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List what can be chosen: all groups, or one group with a line on each choice.

    * `commeff list`
    * `commeff list method`
    """
    with refusals():
        from experiments.describe import catalogue, overview

        rows = catalogue(group, adopted(plugin)) if group else overview(adopted(plugin))
    report(rows, as_json)


@app.command()
def show(settings: Settings = None, plugin: Plugins = None, as_json: Json = False) -> None:
    """Show the whole configuration that settings lead to, and what the method does.

    * `commeff show method=choco compressor=qsgd`
    """
    with refusals():
        from experiments.config import compose
        from experiments.describe import explain

        config = compose(settings or [], adopted(plugin))
    if as_json:
        report(config, as_json)
    else:
        explain(config)


@app.command()
def check(plugin: Annotated[str, typer.Argument(metavar="FILE[:NAME]")]) -> None:
    """Run the laws on a plug-in of your own: every compressor and method in FILE, or the one called NAME.

    * `commeff check mine.py`
    * `commeff check mine.py:SignOfMean`
    """
    with refusals():
        from experiments.check import check_plugin

        broken = check_plugin(plugin)
    raise typer.Exit(1 if broken else 0)


@app.command()
def bench(
    what: Annotated[Literal["step", "mix"], typer.Argument()],
    csv: Annotated[Path | None, typer.Option("--csv", help="Also write the ratios, hardware and commit here.")] = None,
    as_json: Json = False,
) -> None:
    """Measure how far the library is from this machine's limits; exit code 3 if a ratio is outside its tolerance.

    * `commeff bench step` 16 stacked workers against 16 copies, and the library against the bare loop
    * `commeff bench mix` gossip against the bandwidth of a copy
    """
    from commeff.memory import keep_freed_memory
    from experiments.bench.timing import write

    keep_freed_memory()
    figures = import_module(f"experiments.bench.{what}").run()
    if csv is not None:
        write(figures, csv, f"commeff bench {what}")
    if as_json:
        typer.echo(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        verdicts = {True: "", False: "  OUTSIDE"}
        report({f"{f.subject}: {f.what}": f"{f.value:.3f}  {f.limit}{verdicts[f.good]}" for f in figures}, as_json)
    raise typer.Exit(0 if all(figure.good for figure in figures) else 3)


@app.command("sys-info")
def system_information(as_json: Json = False) -> None:
    """Show the machine, the versions and the commit: what every run writes into its env.json."""
    from experiments.system import sys_info

    report(sys_info(), as_json)


@contextmanager
def refusals() -> Iterator[None]:
    """What cannot be run is said in one line for each reason, with exit code 2."""
    try:
        yield
    except ValueError as error:
        for line in str(error).splitlines():
            typer.echo(f"commeff: {line}", err=True)
        raise typer.Exit(2) from None


def adopted(plugins: list[str] | None) -> list[Choice]:
    """The choices that plug-in files add."""
    if not plugins:
        return []
    from experiments.plugins import choices

    return [choice for plugin in plugins for choice in choices(plugin)]


def report(rows: Mapping[str, Any], as_json: bool) -> None:
    """Names and values on stdout: a table, or JSON."""
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(name, Text(shown(value)))
    Console(soft_wrap=True).print(table)


def shown(value: Any) -> str:
    """A number as one reads it: counts and bytes with all their digits, measurements with six."""
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
