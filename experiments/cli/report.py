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
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder with one folder per run.")] = Path("runs"),
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Output folder.  [default: STORE/report]")] = None,
    grid: Annotated[str | None, typer.Option(metavar="NAME", help="One grid of a store with several.")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric for ranking variants, such as val_loss.")] = None,
    target: Annotated[float | None, typer.Option(help="The value to which bytes and time are counted.")] = None,
    baseline: Annotated[str | None, typer.Option(metavar="KEY=VALUE", help="The variant to compare with.")] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A cluster, or its file, for modelled seconds; may be repeated."),
    ] = None,
    step_seconds: Annotated[
        float | None, typer.Option(help="Computing time of a minibatch there, instead of FLOPs.")
    ] = None,
    efficiency: Annotated[
        float | None, typer.Option(help="Share of the GPU's peak in computing.  [default: 0.4]")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Columns of the main table, in order.")
    ] = None,
    style: Annotated[Path | None, typer.Option(metavar="FILE", help="Style of the PDF and PNG figures.")] = None,
    half_dense: Annotated[
        bool | None,
        typer.Option(
            "--half-dense/--no-half-dense",
            help="Add a row for psgd with 16-bit numbers.  [default: as in the grid file, else yes]",
        ),
    ] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Write a report of the runs in STORE: an offline HTML page, Markdown, LaTeX, and figures with their data.

    * `commeff report runs/demo`
    * `commeff report runs --metric val_loss --baseline method=dsgd`
    * `commeff report runs/demo --cluster ethernet_1g --cluster mine.yaml --step-seconds 0.01`
    * `commeff report runs/demo --columns seeds,val_accuracy,wire_bytes,saving --style paper.yaml`

    The report may be written at any time; it names unfinished runs. With clusters it also has the seconds that runs
    would take there, marked "modelled": computing (FLOPs of the run's model at 40 % of the GPU's peak, or the given
    seconds) and exposed communication.

    Columns are seeds, difference (to the baseline), wire_bytes, payload_bytes, saving, to_target, seconds,
    consensus_distance, final metrics (val_accuracy, test_loss ...) and settings that differ between variants (method,
    topology, optimizer.lr ...). Other columns are in a second table.

    A style is a YAML file with width, height (inches), columns, panels, font, font_size, order, labels and colours (by
    variant). Keys at the top apply to all figures, and those under `figures:` to one figure by name. Order and labels
    at the top also apply to the LaTeX tables. experiments/report/paper.yaml is an example.

    A store is treated as data. Modelled seconds and drawings of topologies need its parts; parts of plug-ins are used
    only if this command names their file with `--plugin`.
    """
    with refusals():
        from commeff.cluster.places import read_places
        from commeff.experiments.report.style import read_style
        from commeff.experiments.run.store import check_grid, check_store

        check_store(store)  # all checks without torch and pandas
        check_grid(store, grid)
        named = settings(baseline)
        general = {"step_seconds": step_seconds, "efficiency": efficiency}
        timing = {name: value for name, value in general.items() if value is not None}
        if cluster:
            read_places([{"cluster": name, **timing} for name in cluster])
        if target is not None and not isfinite(target):
            raise ValueError(f"--target must be a level, got {target}")
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
    """The settings of a baseline, separated by commas or blanks.

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
    """Print the main table as text or JSON; as text also the modelled speed-ups and the path of the page."""
    if as_json:
        typer.echo(written.main.data.to_json(orient="records", indent=2))
        return
    from commeff.experiments.report.write.table import print_table

    for table in written.tables.values():
        if (table.kind or table.name) in ("main", "modelled"):
            print_table(table)
    typer.echo(f"report: {written.html}")
