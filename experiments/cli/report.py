"""The command that reads runs: report."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commeff.experiments.cli.common import Json, Plugins, adopted, refusals, try_folder

if TYPE_CHECKING:
    from commeff.experiments.report.write.writing import Report


def report_command(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder that holds one folder a run.")] = Path(
        "runs"
    ),
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write.  [default: STORE/report]", show_default=False),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option("--grid", metavar="NAME", help="One grid of a store that holds several.", show_default=False),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="What variants are ranked by, such as val_loss.", show_default=False)
    ] = None,
    target: Annotated[
        float | None,
        typer.Option("--target", help="The level to which bytes and time are counted.", show_default=False),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="KEY=VALUE", help="The variant to compare with.", show_default=False),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="A cluster, or a file that describes one, on which wall-clock time is modelled; may be repeated.",
            show_default=False,
        ),
    ] = None,
    step_seconds: Annotated[
        float | None,
        typer.Option("--step-seconds", help="Of computing a minibatch there, instead of FLOPs.", show_default=False),
    ] = None,
    efficiency: Annotated[
        float | None,
        typer.Option(
            "--efficiency",
            help="The share of the GPU's peak that computing reaches.  [default: 0.4]",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="NAME,...", help="Of the main table, in this order.", show_default=False),
    ] = None,
    style: Annotated[
        Path | None,
        typer.Option("--style", metavar="FILE", help="How figures look as PDF and PNG.", show_default=False),
    ] = None,
    half_dense: Annotated[
        bool | None,
        typer.Option(
            "--half-dense/--no-half-dense",
            help="Count what psgd would send with 16-bit numbers.  [default: as the grid says, else yes]",
            show_default=False,
        ),
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Write a report of the runs in STORE: a page that opens offline, Markdown, LaTeX, and figures with their data.

    * `commeff report runs/demo`
    * `commeff report runs --metric val_loss --baseline method=dsgd`
    * `commeff report runs/demo --cluster ethernet_1g --cluster mine.yaml --step-seconds 0.01`
    * `commeff report runs/demo --columns seeds,val_accuracy,wire_bytes,saving --style paper.yaml`

    With clusters it also says how long runs would take there, in figures and columns marked "modelled": computing
    (FLOPs of the run's own model over 40 % of the GPU's peak, or as many seconds as are given) and the communication
    that computing does not hide. It can be written at any time; what is not finished is said to be so.

    Columns are seeds, difference (to the baseline), wire_bytes, payload_bytes, saving, to_target, seconds,
    consensus_distance, what runs measure at their end (val_accuracy, test_loss ...) and what tells variants apart
    (method, topology, optimizer.lr ...). What is not named stands in a second table.

    A style is a YAML file with width, height (inches), columns, panels, font, font_size, order, labels and colours (by
    variant), at the top for all figures or under `figures:` for each by its name; experiments/report/paper.yaml is one.
    Its order and labels at the top are those of the LaTeX tables, too.

    What a store says is data. Modelled seconds and pictures of topologies take parts that are built: those of plug-ins
    are built only if this command names them with `--plugin`.
    """
    with refusals():
        from commeff.cluster.places import read_places
        from commeff.experiments.report.style import read_style
        from commeff.experiments.run.store import check_grid, check_store

        check_store(store)  # all that can be known without torch and pandas
        check_grid(store, grid)
        named = settings(baseline)
        general = {"step_seconds": step_seconds, "efficiency": efficiency}
        given = {name: value for name, value in general.items() if value is not None}
        if cluster:
            read_places([{"cluster": name, **given} for name in cluster])
        if target is not None and not isfinite(target):
            raise ValueError(f"--target must be a level, got {target}: no run comes to that")
        looks = None if style is None else read_style(style)
        try_folder("--out", out or store / "report")

        from commeff.experiments.report.write.writing import write_report

        adopted(plugin)
        names = None if columns is None else columns.replace(",", " ").split()
        written = write_report(
            store, out, grid, metric, target, named, cluster or [], step_seconds, efficiency, names, looks, half_dense
        )
    for line in (*written.analysis.undrawn, *written.analysis.unknown):
        typer.echo(f"commeff: {line}", err=True)
    show(written, as_json)


def settings(words: str | None) -> dict[str, str] | None:
    """The settings that a baseline is named by, separated by commas or blanks.

    >>> settings("method=dsgd,topology=ring"), settings(None)
    ({'method': 'dsgd', 'topology': 'ring'}, None)
    """
    if words is None:
        return None
    pairs = [word.partition("=") for word in words.replace(",", " ").split()]
    if not pairs or not all(key and equals for key, equals, _ in pairs):
        raise ValueError(f"--baseline must be key=value, such as method=psgd, got {words!r}")
    return {key: value for key, _, value in pairs}


def show(written: Report, as_json: bool) -> None:
    """The main table on stdout (as text also the modelled speed-ups), as text or as JSON, and where the page is."""
    if as_json:
        typer.echo(written.main.data.to_json(orient="records", indent=2))
        return
    from commeff.experiments.report.write.table import print_table

    for table in written.tables.values():
        if (table.kind or table.name) in ("main", "modelled"):
            print_table(table)
    typer.echo(f"report: {written.html}")
