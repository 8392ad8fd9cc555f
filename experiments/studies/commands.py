"""Commands of a checkout of the repository: bench step, mix and others; lab bench, lab run, lab report."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import (
    Json,
    Plugins,
    Settings,
    adopted,
    deaths,
    refusals,
    report,
    try_file,
    try_folder,
)

lab = typer.Typer(
    no_args_is_help=True,
    help="""Measure on slow networks made on this machine: one namespace per process, links held to a rate by tc.

    The lab needs a checkout of the repository, root, and the tools ip and tc. The network disappears with the command.
    """,
)
ROOT = Path("runs/network_lab")
Csv = Annotated[Path | None, typer.Option("--csv", help="Also write the ratios, hardware and commit to this file.")]
BENCHES = {
    "step": "Measure 16 stacked workers against 16 copies, and the library against the bare loop.",
    "mix": "Measure gossip against the bandwidth of a copy.",
    "processes": "Measure communication over gloo against DistributedDataParallel's on 2 and 4 processes, and 16 "
    "workers on 2 processes against 1; takes minutes.",
    "tensor": "Measure a model split over two ranks against torch's DTensor, in CPU time.",
    "shard": "Measure each stage of ZeRO on two ranks against torch's FSDP2, in CPU time, and the memory of a step.",
    "images": "Measure 8 workers of a ResNet against a plain loop over one model, in 32 and 16 bits.",
    "codecs": "Measure compressors against a copy, as plain functions and compiled, on one thread; takes minutes.",
    "gpu": "Measure a GPT in bf16, 8 stacked ResNet-20, gossip and compressors on a GPU; takes minutes.",
    "store": "Measure planning, status and reports of 5,000 synthetic runs, in CPU seconds; takes minutes.",
}
Root = Annotated[Path, typer.Option("--store", help="The folder with one store per network.")]


def lab_bench(
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Also write all numbers, hardware and commit to this file.")
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, max=10_000, help="Repetitions, of which the median is taken.")
    ] = 7,
    as_json: Json = False,
) -> None:
    """Compare exchanges of a 10 MB model between 8 nodes with the cost model; exit code 3 if one is out of tolerance.

    * `commeff lab bench`
    * `commeff lab bench --csv bench.csv`
    """
    with refusals(), deaths():
        try_file("--csv", csv)

        from commeff.experiments.studies.lab import bench as benches

        readings = benches.run(rounds=rounds)
        if csv is not None:
            benches.write(readings, csv, f"commeff lab bench --rounds {rounds}")
    if as_json:
        typer.echo(json.dumps([asdict(reading) for reading in readings], indent=2))
    else:
        verdicts = {True: "", False: "  OUTSIDE"}
        report(
            {
                f"{r.network}: {r.what} / {r.against}": f"{1e3 * r.measured:.4g} ms / {1e3 * r.expected:.4g} ms = "
                f"{r.ratio:.3f}  {r.limits}{verdicts[r.good]}"
                for r in readings
            },
            as_json,
        )
    raise typer.Exit(0 if all(reading.good for reading in readings) else 3)


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A grid file with nproc in its base, such as nproc: 8.")],
    settings: Settings = None,
    networks: Annotated[str, typer.Option("--networks", help="Names of networks, separated by commas.")] = (
        "100mbit,200mbit,1gbit,slow_link"
    ),
    store: Root = ROOT,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Cells with key=value, in a state, or a run; may be repeated.", show_default=False),
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Run a grid on each network, one cell at a time, with one node per process.

    * `commeff lab run experiments/studies/lab/network_lab.yaml`
    * `commeff lab run mine.yaml --networks 200mbit --only method=psgd`

    Networks are 100mbit, 200mbit, 1gbit, and slow_link: 200 Mbit/s except for one node with 50. Ctrl-C stops with
    checkpoints. The same command skips finished cells and resumes the others.
    """
    with refusals(), deaths():
        from commeff.experiments.grid.command import Request, check
        from commeff.experiments.studies.lab.grid import nodes_of, run_on, shapes

        chosen = shapes(networks)
        request, outcomes = Request(file, settings or [], None, plugin or [], adopted(plugin), only or []), {}
        check(request)
        nodes_of(request)
        try_folder("--store", store)
        for shape in chosen:
            typer.echo(f"network {shape.name}:", err=True)
            outcomes[shape.name] = outcome = run_on(request, shape, store)
            if outcome.interrupted:
                typer.echo("interrupted; the same command goes on", err=True)
                break
    counts = {name: outcome.counts for name, outcome in outcomes.items()}
    if as_json:
        typer.echo(json.dumps(counts, indent=2))
    else:
        report({name: ", ".join(f"{n} {state}" for state, n in of.items()) for name, of in counts.items()}, as_json)
    raise typer.Exit(max(outcome.exit_code for outcome in outcomes.values()))


def lab_report(
    store: Annotated[Path, typer.Argument(metavar="STORE")] = ROOT,
    out: Annotated[Path | None, typer.Option("--out", help="Output folder.  [default: STORE/report]")] = None,
    grid: Annotated[
        str | None, typer.Option("--grid", help="One grid of a store with several.", show_default=False)
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Write a report of the speed-up of each method to the target, measured and modelled.

    * `commeff lab report runs/network_lab --out results/network_lab`
    """
    with refusals():
        from commeff.experiments.run.store import check_store

        check_store(store)
        try_folder("--out", out or store / "report")

        from commeff.experiments.studies.lab.report import report as write

        adopted(plugin)
        words = ["commeff", "lab", "report", str(store), *(["--out", str(out)] if out else [])]
        words += ["--grid", grid] if grid else []
        words += [word for file in plugin or [] for word in ("--plugin", file)]
        for path in write(store, out or store / "report", shlex.join(words), grid):
            typer.echo(str(path))


def measured(what: str) -> Callable[..., None]:
    """The command of a bench: its ratios, with those outside their limits marked."""

    def run(csv: Csv = None, as_json: Json = False) -> None:
        with refusals(), deaths():
            try_file("--csv", csv)

            from commeff.compressors.scratch import keep_freed_memory
            from commeff.experiments.measure.profile import write_rows

            keep_freed_memory()
            bench = import_module(f"commeff.experiments.studies.bench.{what}")
            figures = []
            try:
                figures.extend(bench.run())
            finally:  # an interrupted bench has measured something
                if csv is not None and figures:
                    rows = [asdict(figure) | {"value": round(figure.value, 3)} for figure in figures]
                    write_rows(rows, csv, f"commeff bench {what}", getattr(bench, "hardware", lambda: None)())
        if as_json:
            typer.echo(json.dumps([asdict(figure) for figure in figures], indent=2))
        else:
            verdicts = {True: "", False: "  OUTSIDE"}
            report({f"{f.subject}: {f.what}": f"{f.value:.3f}  {f.limit}{verdicts[f.good]}" for f in figures}, as_json)
        raise typer.Exit(0 if all(figure.good for figure in figures) else 3)

    return run


def add(commands: typer.Typer, bench: typer.Typer) -> None:
    """Add these commands to the application and to its benches."""
    lab.command("bench")(lab_bench)
    lab.command("run")(run)
    lab.command("report")(lab_report)
    commands.add_typer(lab, name="lab")
    for name, words in BENCHES.items():
        bench.command(name, help=words)(measured(name))
