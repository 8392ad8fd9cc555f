"""From a store to a folder with report.html, report.md, tables.tex and figures/."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from commeff.experiments.report.data import contents, results
from commeff.experiments.report.data.analysis import Analysis, analyse
from commeff.experiments.report.data.tables import Table
from commeff.experiments.report.draw.figures import write
from commeff.experiments.report.draw.networks import network_table, networks
from commeff.experiments.report.draw.plots import figures
from commeff.experiments.report.write import html, latex, markdown


@dataclass(frozen=True)
class Report:
    """What was written, and what it says."""

    folder: Path
    analysis: Analysis
    main: Table

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
) -> Report:
    """Write the report of a store into `out` (STORE/report), at whatever stage its runs are.

    grid : the name of a grid of the store; not needed where there is one at most.
    metric : what variants are ranked by; val_accuracy if it was measured, else val_loss.
    target : the level of the metric to which bytes and time are counted; the grid file's, or what the baseline reaches.
    baseline : settings of the variant that others are compared with; the grid file's, or dense psgd.
    """
    analysis = analyse(store, grid, metric, target, baseline)
    folder = out or store / "report"
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    found, faults = networks(analysis)
    tables = {table.name: table for table in (results.main_table(analysis), *_others(analysis)) if table is not None}
    if found:
        tables["topologies"] = network_table(found)
    drawn = {figure.name: figure for figure in figures(analysis, found)}
    for figure in drawn.values():
        write(figure, folder / "figures")
    for table in tables.values():
        if table.name not in drawn:
            table.data.to_csv(folder / "figures" / f"{table.name}.csv", index=False)
    unread = [*analysis.faults, *faults]
    _write(folder / "report.html", html.page(analysis, tables, drawn, unread, folder))
    _write(folder / "report.md", markdown.document(analysis, tables.values(), drawn.values(), unread))
    _write(folder / "tables.tex", latex.document(tables.values()))
    return Report(folder, analysis, tables["main"])


def _others(analysis: Analysis) -> list[Table | None]:
    return [
        contents.target_table(analysis),
        contents.sweep_table(analysis),
        contents.failure_table(analysis),
        contents.environment_table(analysis),
    ]


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
