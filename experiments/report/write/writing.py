"""From a store to a folder with report.html, report.md, tables.tex, tables/ and figures/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from commeff.experiments.escape import file_name, markdown_block, markdown_text
from commeff.experiments.report.data.analysis import Analysis, analyse
from commeff.experiments.report.data.summary import at, facts, findings, standing
from commeff.experiments.report.data.wallclock import Modeller, Wallclock, places_of, wallclock
from commeff.experiments.report.draw.figures import Figure, write, write_csv
from commeff.experiments.report.draw.networks import UsedTopology, networks
from commeff.experiments.report.draw.plots import drawings, figures
from commeff.experiments.report.draw.scaling import scaling, stragglers
from commeff.experiments.report.draw.style import restyled, styled, unknown_variants
from commeff.experiments.report.draw.wallclock import modelled_convergence, speed_up, step_time
from commeff.experiments.report.style import FigureStyle
from commeff.experiments.report.write import html, latex, table_details
from commeff.experiments.report.write.cells import explained
from commeff.experiments.report.write.page import write_text
from commeff.experiments.report.write.table import Table, markdown
from commeff.experiments.report.write.table_main import check_columns, main_tables
from commeff.experiments.report.write.table_wallclock import cluster_table, speed_up_table
from commeff.files import unlinked

MOST = 100  # panels of a figure
T = TypeVar("T", Figure, Table)


@dataclass(frozen=True)
class Report:
    """What was written, and what it says."""

    folder: Path
    analysis: Analysis
    tables: Mapping[str, Table]
    main: Table  # of all tasks

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
    columns: Sequence[str] | None = None,
    style: FigureStyle | None = None,
    half: bool | None = None,
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
    columns : of the main table; the others stand in a second one.
    style : how figures look as PDF and PNG, as `commeff.experiments.report.style` reads it; its `labels` and `order`
        are those of LaTeX tables, too.
    half : whether the bytes of 16-bit dense psgd are counted; as the grid says, which has them unless it says so.

    Raises
    ------
    ValueError
        Before anything is written, if something of it is not there.
    """
    folder = out or unlinked(store / "report")
    parts = [unlinked(folder / part) for part in ("figures", "tables")]
    analysis = analyse(store, grid, metric, target, baseline, half)
    if columns is not None:
        check_columns(analysis, columns)
    places, modeller = places_of(analysis, clusters, step_seconds, efficiency), Modeller()
    clocks = [wallclock(analysis, place, modeller) for place in places]
    grid_style = {"labels": analysis.grid.labels, "order": analysis.grid.order}
    unknown = unknown_variants(grid_style, analysis)
    analysis = restyled(analysis, grid_style, in_words=False)
    topologies, faults = networks(analysis)
    every = _tables(analysis, clocks, columns)
    every += [table_details.topology_table(topologies)] if topologies else []
    main, tables = main_tables(analysis, clocks, columns)[0], {table.name: table for table in every}
    build = partial(_figures, clocks=clocks, topologies=topologies)
    drawn = draw_all(analysis, clocks, topologies)
    files: Sequence[tuple[Figure, dict[str, Any]]] = [(figure, {}) for figure in drawn.values()]
    printed = tables
    if style:
        files = styled(style, drawn, analysis, build)
        if content := {key: style.common[key] for key in ("labels", "order") if key in style.common}:
            restyled_tables = _tables(restyled(analysis, content, in_words=False), clocks, columns)
            printed = tables | {table.name: table for table in restyled_tables}
    for part in parts:
        part.mkdir(parents=True, exist_ok=True)
    for figure, settings in files:
        write(figure, folder / "figures", settings)
    for table in (*tables.values(), main):
        if table.name not in drawn and not table.data.empty:
            write_csv(table.data, folder / "figures" / f"{table.name}.csv")
    unread = [*unknown, *analysis.faults, *analysis.undrawn, *analysis.unknown, *faults]
    write_text(folder / "report.html", html.page(analysis, tables, drawn, unread, folder))
    write_text(folder / "report.md", _markdown_document(analysis, tables.values(), drawn.values(), unread))
    write_text(folder / "tables.tex", latex.document(printed.values()))
    for table in printed.values():
        write_text(folder / "tables" / f"{table.name}.tex", latex.file(table))
    return Report(folder, analysis, tables, main)


def _figures(analysis: Analysis, clocks: Sequence[Wallclock], topologies: Sequence[UsedTopology]) -> list[Figure]:
    every: list[Figure] = []
    for part in analysis.parts:
        drawn = [figure(part, clocks) for figure in (speed_up, modelled_convergence, step_time)]
        drawn += [stragglers(part), *figures(part), scaling(part, clocks)]
        every += [_named(figure, part) for figure in drawn if figure is not None]
    return [*map(_bounded, [*_by_kind(every), *drawings(topologies)])]


def draw_all(analysis: Analysis, clocks: Sequence[Wallclock], topologies: Sequence[UsedTopology]) -> dict[str, Figure]:
    """The figures by name: pictures call variants by a reader's words, the data beside them as the store does."""
    shown = restyled(analysis, {})
    stored = {new.name: old.name for old, new in zip(analysis.variants, shown.variants, strict=True)}

    def named(figure: Figure) -> Figure:
        columns = [name for name in ("variant", "baseline") if name in figure.data]
        return replace(figure, data=figure.data.replace(dict.fromkeys(columns, stored)))

    return {figure.name: named(figure) for figure in _figures(shown, clocks, topologies)}


def _bounded(figure: Figure) -> Figure:
    """A figure of at most `MOST` panels: more make no picture, and take minutes."""
    if len(figure.panels) <= MOST:
        return figure
    caption = f"{figure.caption} The first {MOST} of {len(figure.panels)} panels; the data are complete."
    return replace(figure, panels=figure.panels[:MOST], caption=caption)


def _tables(analysis: Analysis, clocks: Sequence[Wallclock], columns: Sequence[str] | None) -> list[Table]:
    every: list[Table] = []
    for part in analysis.parts:
        tables = main_tables(part, clocks, columns)
        others = [speed_up_table(part, clocks), *(cluster_table(part, clock) for clock in clocks)]
        others += [table_details.target_table(part), table_details.sweep_table(part)]
        tables += [table for table in others if table]
        every += [_named(table, part) for table in tables]
    whole = (table_details.failure_table(analysis), table_details.environment_table(analysis))
    return [*map(explained, _by_kind(every)), *(table for table in whole if table)]


def _named(one: T, part: Analysis) -> T:
    """The title of a figure or a table of one of several tasks says so."""
    if not part.part:
        return one
    return replace(one, name=f"{one.name}_{file_name(part.part)}", title=one.title + at(part.part), kind=one.name)


def _by_kind(every: Sequence[T]) -> list[T]:
    """Figures or tables of one kind, for several tasks, side by side."""
    kinds = [*dict.fromkeys(one.kind or one.name for one in every)]
    return sorted(every, key=lambda one: kinds.index(one.kind or one.name))


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
