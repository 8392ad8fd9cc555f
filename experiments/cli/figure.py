"""`commeff figure`: any metric against any setting, of a store or of a grid file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from commeff.experiments.cli.common import Json, Plugins, adopted, refusals, try_file
from commeff.require import did_you_mean

if TYPE_CHECKING:
    from commeff.experiments.grid.command import Request
    from commeff.experiments.report.data.points import FigureRun


def figure(
    store: Annotated[Path, typer.Argument(metavar="STORE|GRID", help="A folder of runs, or a grid file.")],
    x: Annotated[str, typer.Option(metavar="FORMULA", help="The horizontal axis.")] = "step",
    y: Annotated[str, typer.Option(metavar="FORMULA", help="The vertical axis.")] = "val_loss",
    per: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A line per value; may be repeated. `name`: a grid's names.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only these runs; may be repeated.")
    ] = None,
    grid: Annotated[str | None, typer.Option(metavar="NAME", help="One grid of a store with several.")] = None,
    slope: Annotated[
        list[float] | None, typer.Option(help="A grey guide line, this power of x; may be repeated.")
    ] = None,
    log: Annotated[
        Literal["x", "y", "xy", "none"] | None,
        typer.Option(help="Logarithmic axes.  [default: those with a wide range]"),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the figure.", show_default=False)] = "",
    x_label: Annotated[str, typer.Option(help="Replaces the formula.", show_default=False)] = "",
    y_label: Annotated[str, typer.Option(help="Replaces the formula.", show_default=False)] = "",
    style: Annotated[Path | None, typer.Option(metavar="NAME|FILE", help="lecture, paper, or your own file.")] = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="A .png, .pdf or .svg; the data go beside it as .csv.")
    ] = Path("figure.png"),
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", help="Processes for a grid file.  [default: one per core]")
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Draw any metric against any setting, with one line per value of a key.

    * `commeff figure runs/demo --x step --y val_loss --per name`
    * `commeff figure runs/demo --x "last(wire_bytes)" --y val_accuracy --per name --style paper --out bytes.pdf`
    * `commeff figure runs --x topology.gap --y consensus_distance --per compressor --slope -1`
    * `commeff figure runs --x workers --y "until(step, val_loss, 0.1)" --per method --slope -1`
    * `commeff figure experiments/grids/gallery/graphs.yaml --x workers --y topology.gap --per topology`

    A FORMULA combines names and numbers with + - * / ** and sqrt exp log log2 log10 abs. Names are metrics
    (val_loss, wire_bytes), settings (method.period, optimizer.lr) and constants of parts: topology.rho gap lambda_min
    degree n period contraction, compressor.omega delta bits d, and task.NAME for the constants of a task, such as L. A
    metric stands for its final value. With a metric at --x, lines are curves over the run, and `last(METRIC)` is the
    final value. `until(METRIC, TARGET, LEVEL)` is the METRIC when the TARGET first reaches the LEVEL.

    Seeds are averaged, with 95 % intervals (Student's t; of logarithms on a logarithmic axis). Every other setting that
    varies must be at an axis, in --per, or chosen by the grid's `select`. A point is drawn if all its seeds have it.

    A grid file is run first as by `commeff grid`; finished runs are not repeated, and constants need no runs.
    """
    with refusals():
        from commeff.experiments.report.data.formula import Formula
        from commeff.experiments.report.style import read_style

        across, up = Formula.read("--x", x), Formula.read("--y", y)
        look = {} if style is None else read_style(style).of("", "figure")
        rules = [(key, value) for key, equals, value in (word.partition("=") for word in only or []) if equals and key]
        if len(rules) < len(only or []):
            raise ValueError(f"--only must be KEY=VALUE, such as method=dsgd, got {' '.join(only or [])}")
        try_file("--out", out, figure=True)
        from commeff.experiments.run.store import check_grid, check_store

        request = _request(store, jobs, plugin) if store.suffix in (".yaml", ".yml") else None
        if request is None:
            check_store(store)
            check_grid(store, grid)
        elif grid is not None:
            raise ValueError(f"--grid must be left out for a grid file, got {grid}: it is called {request.name}")

        from commeff.experiments.report.data.points import kinds, points, stored_runs

        adopted(plugin)
        runs = _planned(request) if request else []
        formulas = {"--x": across, "--y": up}
        if request is None or "metric" in kinds(runs, formulas, per or [], planned=True).values():
            place, name = (request.place, request.name) if request else (store, grid)
            if request:
                from commeff.experiments.grid import command

                if command.run(request).interrupted:
                    typer.echo("interrupted; the same command goes on", err=True)
                    raise typer.Exit(130)
            runs = stored_runs(place, name, [*across.names, *up.names, *(per or [])])
        for key in dict.fromkeys(key for key, _ in rules):
            values = [value for other, value in rules if other == key]
            stored = dict.fromkeys(str(run.settings[key]) for run in runs if key in run.settings)
            if not stored:
                near = did_you_mean(key, [name for run in runs for name in run.settings])
                raise ValueError(f"--only must be of a setting of some run, got {key!r}{near}")
            runs = [run for run in runs if run.settings.get(key) in values]
            if not runs:
                raise ValueError(f"--only must keep some run, got {key}={', '.join(values)}; it is {', '.join(stored)}")
        table = points(runs, across, up, per or [], {None: "xy" if slope else None, "none": ""}.get(log, log))
        if as_json:
            typer.echo(table.data.to_json(orient="records", indent=2))

        from commeff.experiments.report.draw import points as draw
        from commeff.experiments.report.draw.figures import write_csv

        drawn = draw.drawing(table, across, up, slope or [], title, (x_label, y_label), look)
        out.parent.mkdir(parents=True, exist_ok=True)
        draw.write(drawn, out, look)
        write_csv(table.data.rename(columns={"x": x, "y": y}), out.with_suffix(".csv"))
    for why, count in table.left_out.items():
        typer.echo(f"commeff: not shown: {count} runs, {why}", err=True)
    typer.echo(f"figure: {out}, its data {out.with_suffix('.csv')}", err=as_json)


def _request(file: Path, jobs: int | None, plugin: list[str] | None) -> Request:
    """The request of `commeff grid` for a file."""
    from commeff.experiments.grid import command
    from commeff.experiments.grid.local.scheduler import Limits
    from commeff.experiments.run.system import cores

    limits = Limits(cores() if jobs is None else jobs)
    request = command.Request(file, plugins=plugin or [], choices=adopted(plugin), limits=limits)
    command.check(request)
    return request


def _planned(request: Request) -> list[FigureRun]:
    """The runs of a grid file before any has started."""
    from commeff.experiments.grid import command
    from commeff.experiments.report.data.points import FigureRun
    from commeff.experiments.report.data.records import Record

    cells, _ = command.prepare(request, rehearsed=False)
    return [FigureRun(Record(cell.folder.name, cell.folder, config=cell.config), cell.name or "") for cell in cells]
