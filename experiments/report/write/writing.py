"""From a store to a folder with report.html, report.md, tables.tex, tables/ and figures/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from commeff.experiments.escape import markdown_block, markdown_text
from commeff.experiments.report.data.analysis import Analysis, analyse
from commeff.experiments.report.data.summary import facts, findings, standing
from commeff.experiments.report.data.wallclock import Wallclock, wallclocks
from commeff.experiments.report.draw.figures import Figure, write, write_csv
from commeff.experiments.report.draw.networks import UsedTopology, networks
from commeff.experiments.report.draw.plots import figures
from commeff.experiments.report.draw.scaling import scaling
from commeff.experiments.report.draw.wallclock import wallclock_figures
from commeff.experiments.report.write import html, table_details
from commeff.experiments.report.write.table import Table, latex_document, latex_file, markdown
from commeff.experiments.report.write.table_main import main_table
from commeff.experiments.report.write.table_wallclock import cluster_table, speed_up_table
from commeff.files import regular


@dataclass(frozen=True)
class Report:
    """What was written, and what it says."""

    folder: Path
    analysis: Analysis
    tables: Mapping[str, Table]

    @property
    def main(self) -> Table:
        """The main table."""
        return self.tables["main"]

    @property
    def html(self) -> Path:
        """The page to open."""
        return self.folder / "report.html"


def write_report(
    store: Path,
    out: Path | None = None,
    grid: str | None = None,
    metric: str | None = None,
    target: float | None = None,
    baseline: Mapping[str, str] | None = None,
    clusters: Sequence[str] = (),
    step_seconds: float | None = None,
    efficiency: float | None = None,
) -> Report:
    """Write the report of a store into `out` (STORE/report), at whatever stage its runs are.

    Parameters
    ----------
    grid : the name of a grid of the store; not needed where there is one at most.
    metric : what variants are ranked by; val_accuracy if it was measured, else val_loss.
    target : the level of the metric to which bytes and time are counted; the grid file's, or what the baseline reaches.
    baseline : settings of the variant that others are compared with; the grid file's, or dense psgd.
    clusters : names or files of clusters on which wall-clock time is modelled; the grid file's.
    step_seconds, efficiency : how fast a worker computes on all of them, instead of what the grid file says.

    Raises
    ------
    ValueError
        Before anything is written, if something of it is not there.
    """
    analysis = analyse(store, grid, metric, target, baseline)
    modelled = clusters or analysis.grid.clusters or step_seconds is not None or efficiency is not None
    clocks = wallclocks(analysis, clusters, step_seconds, efficiency) if modelled else []
    folder = out or store / "report"
    for part in ("figures", "tables"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    between = any("topology" in run.record.config for run in analysis.runs)
    topologies, faults = networks(analysis) if between else ([], [])
    contents = (main_table(analysis, clocks), *(_modelled(analysis, clocks) if clocks else ()), *_details(analysis))
    tables = {table.name: table for table in contents if table is not None}
    if topologies:
        tables["topologies"] = table_details.topology_table(topologies)
    drawn = {figure.name: figure for figure in _figures(analysis, clocks, topologies)}
    for figure in drawn.values():
        write(figure, folder / "figures")
    for table in tables.values():
        if table.name not in drawn:
            write_csv(table.data, folder / "figures" / f"{table.name}.csv")
    unread = [*analysis.faults, *analysis.unknown, *faults]
    _write(folder / "report.html", html.page(analysis, tables, drawn, unread, folder))
    _write(folder / "report.md", _markdown_document(analysis, tables.values(), drawn.values(), unread))
    _write(folder / "tables.tex", latex_document(tables.values()))
    for table in tables.values():
        _write(folder / "tables" / f"{table.name}.tex", latex_file(table))
    return Report(folder, analysis, tables)


def _figures(analysis: Analysis, clocks: Sequence[Wallclock], topologies: Sequence[UsedTopology]) -> list[Figure]:
    every = [*(wallclock_figures(analysis, clocks) if clocks else ()), *figures(analysis, topologies)]
    if len({variant.runs[0].setting("workers") for variant in analysis.variants}) > 1:
        every += scaling(analysis, clocks)
    return every


def _modelled(analysis: Analysis, clocks: Sequence[Wallclock]) -> list[Table | None]:
    return [speed_up_table(analysis, clocks), *map(cluster_table, clocks)]


def _details(analysis: Analysis) -> list[Table | None]:
    return [
        table_details.target_table(analysis),
        table_details.sweep_table(analysis),
        table_details.failure_table(analysis),
        table_details.environment_table(analysis),
    ]


def _markdown_document(
    analysis: Analysis, tables: Iterable[Table], figures: Iterable[Figure], faults: Sequence[str]
) -> str:
    """The report as Markdown: the same tables, and figures as PNG files beside it."""
    parts = [f"# {markdown_text(analysis.grid.title)}", markdown_text(standing(analysis))]
    parts.append("\n".join(f"- **{name}**: {markdown_text(value)}" for name, value in facts(analysis)))
    if analysis.grid.command:
        parts.append(markdown_block(analysis.grid.command))
    parts.append("\n".join(f"- {markdown_text(line)}" for line in findings(analysis)))
    for table in tables:
        notes = [f"\n{markdown_text(note)}" for note in table.notes]
        parts.append("\n".join([f"## {markdown_text(table.title)}", "", *markdown(table), *notes]))
    for figure in figures:
        title = markdown_text(figure.title)
        parts.append(f"## {title}\n\n![{title}](figures/{figure.name}.png)\n\n{markdown_text(figure.caption)}")
    parts += [f"- {markdown_text(warning)}" for warning in analysis.warnings]
    parts.append("\n".join(f"- {markdown_text(fault)}" for fault in faults))
    return "\n\n".join(part for part in parts if part) + "\n"


def _write(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=regular) as file:
        file.write(text)
