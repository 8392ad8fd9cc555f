"""Pieces of the page: the main table with its runs, figures, and the sample of a variant's line."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from commeff.experiments.escape import html_text
from commeff.experiments.report.data.analysis import Analysis, TableRow
from commeff.experiments.report.data.quantities import MISSING, quantity, significant
from commeff.experiments.report.data.variants import RecordedRun
from commeff.experiments.report.draw.figures import INKS, Figure, Look, svg
from commeff.experiments.report.write.table import Table, html_cells, html_frame, tag
from commeff.experiments.report.write.table_details import command_of

SHAPES = {  # the markers of `figures.MARKERS` about (15, 5)
    "o": '<circle cx="15" cy="5" r="3"/>',
    "s": '<path d="M12.2 2.2h5.6v5.6h-5.6z"/>',
    "D": '<path d="M15 1.2 18.8 5 15 8.8 11.2 5z"/>',
    "^": '<path d="M15 1.4 18.6 8H11.4z"/>',
    "v": '<path d="M15 8.6 18.6 2H11.4z"/>',
    "P": '<path d="M13.8 1.4h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4V6.2h-2.4V3.8h2.4z"/>',
    "X": '<path d="M12.6 1.2 15 3.6l2.4-2.4 1.4 1.4L16.4 5l2.4 2.4-1.4 1.4L15 6.4l-2.4 2.4-1.4-1.4L13.6 5l-2.4-2.4z"/>',
    "*": '<path d="m15 .6 1.2 2.9 3.1.2-2.4 2 .8 3-2.7-1.6-2.7 1.6.8-3-2.4-2 3.1-.2z"/>',
}
RUN_COLUMNS = ("val_accuracy", "val_loss", "test_accuracy", "test_loss", "train_loss", "wire_bytes", "seconds")


def main_table(analysis: Analysis, table: Table, swatches: Mapping[int, str], out: Path) -> str:
    """The main table: a body a variant, so that a line and its runs stay together when lines are sorted."""
    bodies = []
    for row, items in zip(analysis.rows, table.rows, strict=False):
        number = row.variant.number
        cells = html_cells(table, items, f'<i class="caret"></i>{swatches[number]}')
        runs = tag("td", _runs(analysis, row, out), colspan=str(len(table.columns)))
        lines = tag("tr", cells, ["line"], data_variant=str(number)) + "\n" + tag("tr", runs, ["more"])
        bodies.append(tag("tbody", lines))
    for items in table.rows[len(analysis.rows) :]:
        bodies.append(tag("tbody", tag("tr", html_cells(table, items)), data_last="1"))
    return html_frame(table, "main", bodies)


def figure(drawn: Figure, titled: bool) -> str:
    """Panels that the page lays out, the caption, and the files."""
    single = ["single"] if len(drawn.panels) == 1 else []
    parts = [tag("div", svg(drawn, panel), ["panel", *single]) for panel in drawn.panels]
    links = [tag("a", kind.upper(), href=f"figures/{drawn.name}.{kind}") for kind in ("pdf", "png", "csv")]
    caption = f"{html_text(drawn.caption)} {tag('span', ' · '.join(links), ['files'])}"
    shape = ["panels", "small"] if drawn.small else ["panels"]
    key = [tag("span", swatch(look) + html_text(name)) for name, look in drawn.legend] if drawn.own_key else []
    legend = [tag("div", "".join(key), ["legend"])] if key else []
    body = [heading(drawn.title, titled), tag("div", "\n".join(parts), shape), *legend, tag("figcaption", caption)]
    return tag("figure", "\n".join(body))


def swatch(style: Look) -> str:
    """A sample of a variant's line with its marker."""
    dash = "" if style.dash in ("-", "") else " ".join(f"{length * style.width:g}" for length in style.dash[1])
    width = f"{style.width:g}" if style.dash else "0"
    line = tag("path", "", d="M0 5h30", stroke="currentColor", stroke_width=width, stroke_dasharray=dash)
    ink = f"color:{INKS[style.colour]}"
    shape = SHAPES[style.marker]
    return tag("svg", line + shape, ["swatch"], viewBox="0 0 30 10", aria_hidden="true", fill="currentColor", style=ink)


def heading(title: str, titled: bool) -> str:
    """A heading, but for what is alone in a section that has the same."""
    return tag("h3", html_text(title)) if titled else ""


def _runs(analysis: Analysis, row: TableRow, out: Path) -> str:
    """The runs of a line, those at the chosen values first: folder, seed, state, final numbers, and the command."""
    others = [run for trial in row.variant.trials if trial is not row.variant.chosen for run in trial.runs]
    runs, tuned, quiet = [*row.variant.runs, *others], list(analysis.grid.over), set(others)
    metrics = [name for name in RUN_COLUMNS if any(math.isfinite(run.record.final(name)) for run in runs)]
    heads = ["run", *tuned, "seed", "state", *(quantity(name).heading for name in metrics)]
    lines = [tag("tr", "".join(tag("th", html_text(head), ["words"] if head == "run" else []) for head in heads))]
    for run in runs:
        labels = [run.cell.labels.get(key, MISSING) for key in tuned]
        words = [*labels, str(run.seed), run.record.state, *(_final(run, name) for name in metrics)]
        origin = run.record.status.get("origin")
        named = _link(run, out) + (html_text(f", from {origin}") if origin else "")
        cells = tag("td", named, ["words", "code"]) + "".join(tag("td", html_text(text)) for text in words)
        command = tag("td", html_text(command_of(run, analysis)), ["words", "code", "command"], colspan=str(len(heads)))
        lines += [tag("tr", cells, ["quiet"] if run in quiet else []), tag("tr", command)]
    plural = "run" if len(runs) == 1 else "runs"
    tried = f" at {len(row.variant.trials)} tuned values" if len(row.variant.trials) > 1 else ""
    return tag("details", tag("summary", f"{len(runs)} {plural}{tried}, with commands") + tag("table", "".join(lines)))


def _final(run: RecordedRun, metric: str) -> str:
    value, of = run.record.final(metric), quantity(metric)
    return significant(value * of.scale, 4 if of.unit == "%" else 3) if math.isfinite(value) else MISSING


def _link(run: RecordedRun, out: Path) -> str:
    """The run's name, leading to its folder where there is one."""
    if not run.record.folder.is_dir():
        return html_text(run.cell.run)
    way = Path(os.path.relpath(run.record.folder, out)).as_posix()
    return tag("a", html_text(run.cell.run), href=f"{quote(way)}/")
