"""Commands that test and measure: check, bench."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.comm import comm
from commeff.experiments.cli.common import Json, deaths, refusals, report, try_file


def check(plugin: Annotated[str, typer.Argument(metavar="FILE[:NAME]")], as_json: Json = False) -> None:
    """Run the laws on a plug-in of your own: every compressor, method, topology and task in FILE, or the one called
    NAME; exit code 1 if a law is broken.

    * `commeff check mine.py`
    * `commeff check mine.py:SignOfMean`
    """
    with refusals():
        from commeff.experiments.config.plugins import choices, file_and_name

        file, _ = file_and_name(plugin)
        if file.endswith(".py") and not Path(file).is_file():
            raise ValueError(f"no plug-in file {file}")
        choices(file)

        from commeff.experiments.config.check import check_plugin

        verdicts = check_plugin(plugin)
    if as_json:
        typer.echo(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    else:
        for name in dict.fromkeys(verdict.name for verdict in verdicts):
            own = [verdict for verdict in verdicts if verdict.name == name]
            for verdict in own:
                if verdict.state == "broken":
                    typer.echo(f"{name}: BROKEN {verdict.law}: {verdict.sentence}")
                if verdict.state == "noted":
                    typer.echo(f"{name}: note, {verdict.law}: {verdict.sentence}")
            for state, words in (("holds", "hold"), ("waits", "cannot be judged until those hold")):
                laws = [verdict.law for verdict in own if verdict.state == state]
                if laws:
                    typer.echo(f"{name}: {len(laws)} of {len(own)} laws {words}: {', '.join(laws)}")
    raise typer.Exit(1 if any(verdict.state == "broken" for verdict in verdicts) else 0)


Csv = Annotated[Path | None, typer.Option("--csv", help="Also write the ratios, hardware and commit here.")]

bench = typer.Typer(
    no_args_is_help=True,
    help="Measure this machine, and how far the library is from its limits; exit code 3 if a ratio is outside its "
    "tolerance. All but `comm` run from a checkout of the repository.",
)


BENCHES = {
    "step": "Measure 16 stacked workers against 16 copies, and the library against the bare loop.",
    "mix": "Measure gossip against the bandwidth of a copy.",
    "processes": "Measure communication over gloo against DistributedDataParallel's, on 2 and on 4 processes, and 16 "
    "workers on 2 processes against 1; some minutes.",
    "tensor": "Measure a model that is split over two ranks against torch's DTensor, in CPU time.",
    "images": "Measure 8 workers that train a ResNet against a plain loop over one model, in 32 and in 16 bits.",
    "store": "Measure planning, status and reports of 5,000 runs that nobody trained, in CPU seconds; some minutes.",
}


def _measured(what: str) -> Callable[..., None]:
    """The command of a bench: its figures, with what misses its limit."""

    def run(csv: Csv = None, as_json: Json = False) -> None:
        with refusals(), deaths():
            try_file("--csv", csv)

            from commeff.compressors.scratch import keep_freed_memory
            from commeff.experiments.studies.bench.ratios import write

            keep_freed_memory()
            figures = import_module(f"commeff.experiments.studies.bench.{what}").run()
            if csv is not None:
                write(figures, csv, f"commeff bench {what}")
        if as_json:
            typer.echo(json.dumps([asdict(figure) for figure in figures], indent=2))
        else:
            verdicts = {True: "", False: "  OUTSIDE"}
            report({f"{f.subject}: {f.what}": f"{f.value:.3f}  {f.limit}{verdicts[f.good]}" for f in figures}, as_json)
        raise typer.Exit(0 if all(figure.good for figure in figures) else 3)

    return run


for name, words in BENCHES.items():
    bench.command(name, help=words)(_measured(name))
bench.command()(comm)
