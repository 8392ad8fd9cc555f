"""Pieces of the page: tables, figures, and the sample of a variant's line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from commeff.experiments.report.data.analysis import Analysis, Row
from commeff.experiments.report.data.contents import command_of
from commeff.experiments.report.data.quantities import MISSING, quantity, significant
from commeff.experiments.report.data.tables import Column, Item, Table
from commeff.experiments.report.data.variants import Run
from commeff.experiments.report.draw.figures import INKS, Figure, Look, svg

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
LONG = 36  # characters from which a cell of words may be broken


def tag(name: str, body: str, kinds: Sequence[str] = (), **attributes: str) -> str:
    """An element; `body` is markup, attributes are text.

    >>> tag("td", "<b>1</b>", ["quiet"], title='"a"')
    '<td class="quiet" title="&quot;a&quot;"><b>1</b></td>'
    """
    given = ({"class": " ".join(kinds)} if kinds else {}) | attributes
    opened = "".join(f' {key.replace("_", "-")}="{escape(value)}"' for key, value in given.items())
    return f"<{name}{opened}>{body}</{name}>"


def main_table(analysis: Analysis, table: Table, swatches: Mapping[int, str], out: Path) -> str:
    """The main table: a body a variant, so that a line and its runs stay together when lines are sorted."""
    bodies = []
    for row, items in zip(analysis.rows, table.rows, strict=False):
        number = row.variant.number
        cells = _cells(table, items, f'<i class="caret"></i>{swatches[number]}')
        runs = tag("td", _runs(analysis, row, out), colspan=str(len(table.columns)))
        lines = tag("tr", cells, ["line"], data_variant=str(number)) + "\n" + tag("tr", runs, ["more"])
        bodies.append(tag("tbody", lines))
    for items in table.rows[len(analysis.rows) :]:
        bodies.append(tag("tbody", tag("tr", _cells(table, items)), data_last="1"))
    return _framed(table, "main", bodies)


def plain_table(table: Table, swatch: Callable[[str], str], titled: bool) -> str:
    """Any other table, a body a line so that lines can be sorted; the first cell may have a variant's sample."""
    lines = [tag("tbody", tag("tr", _cells(table, items, swatch(items[0].text)))) for items in table.rows]
    return _title(table.title, titled) + _framed(table, "plain", lines)


def figure(drawn: Figure, titled: bool) -> str:
    """Panels that the page lays out, the caption, and the files."""
    single = ["single"] if len(drawn.panels) == 1 else []
    parts = [tag("div", svg(drawn, panel), ["panel", *single]) for panel in drawn.panels]
    links = [tag("a", kind.upper(), href=f"figures/{drawn.name}.{kind}") for kind in ("pdf", "png", "csv")]
    caption = f"{escape(drawn.caption)} {tag('span', ' · '.join(links), ['files'])}"
    shape = ["panels", "small"] if drawn.small else ["panels"]
    body = [_title(drawn.title, titled), tag("div", "\n".join(parts), shape), tag("figcaption", caption)]
    return tag("figure", "\n".join(body))


def swatch(style: Look) -> str:
    """A sample of a variant's line with its marker."""
    dash = "" if style.dash == "-" else " ".join(f"{length * style.width:g}" for length in style.dash[1])
    line = tag("path", "", d="M0 5h30", stroke="currentColor", stroke_width=f"{style.width:g}", stroke_dasharray=dash)
    ink = f"color:{INKS[style.colour]}"
    shape = SHAPES[style.marker]
    return tag("svg", line + shape, ["swatch"], viewBox="0 0 30 10", aria_hidden="true", fill="currentColor", style=ink)


def _title(title: str, titled: bool) -> str:
    """A heading, but for what is alone in a section that has the same."""
    return tag("h3", escape(title)) if titled else ""


def _framed(table: Table, kind: str, bodies: Sequence[str]) -> str:
    """A table in a box of its own that scrolls, with its notes and its file."""
    sort = {"data_sort": "1"} if len(bodies) > 2 else {}
    heads = [
        tag(
            "th",
            escape(column.heading) + (tag("small", escape(column.under)) if column.under else ""),
            ["words"] if column.words else [],
            scope="col",
            **sort,
        )
        for column in table.columns
    ]
    head = tag("thead", tag("tr", "".join(heads)))
    box = tag("div", tag("table", "\n".join([head, *bodies]), [kind]), ["box"], tabindex="0")
    notes = tag("div", "".join(tag("p", escape(note)) for note in table.notes), ["notes"]) if table.notes else ""
    file = tag("p", tag("a", f"{table.name}.csv", href=f"figures/{table.name}.csv"), ["files"])
    return "\n".join([box, notes, file])


def _cells(table: Table, items: Sequence[Item], before: str = "") -> str:
    """The cells of a line; markup `before` the first."""
    return "".join(
        _cell(column, item, "" if i else before)
        for i, (column, item) in enumerate(zip(table.columns, items, strict=True))
    )


def _cell(column: Column, item: Item, before: str) -> str:
    long = column.words and len(item.text) > LONG
    kinds = {"words": column.words, "quiet": item.quiet, "code": column.code}
    kinds |= {"command": long and column.code, "wrap": long and not column.code}
    text = tag("b", escape(item.text)) if item.best else escape(item.text)
    if item.half:
        text += tag("span", f"± {escape(item.half)}", ["half"])
    if item.mark:
        text += tag("span", escape(item.mark), ["mark" if len(item.mark) == 1 else "aside"])
    known = item.value is not None and math.isfinite(item.value)
    value = {"data_value": repr(item.value)} if known else {}
    return tag("td", before + text, [kind for kind, is_so in kinds.items() if is_so], **value)


def _runs(analysis: Analysis, row: Row, out: Path) -> str:
    """The runs of a line, those at the chosen values first: folder, seed, state, final numbers, and the command."""
    others = [run for trial in row.variant.trials if trial is not row.variant.chosen for run in trial.runs]
    runs, tuned = [*row.variant.runs, *others], list(analysis.grid.over)
    metrics = [name for name in RUN_COLUMNS if any(math.isfinite(run.record.final(name)) for run in runs)]
    heads = ["run", *tuned, "seed", "state", *(quantity(name).heading for name in metrics)]
    lines = [tag("tr", "".join(tag("th", escape(head), ["words"] if head == "run" else []) for head in heads))]
    for run in runs:
        labels = [run.cell.labels.get(key, MISSING) for key in tuned]
        words = [*labels, str(run.seed), run.record.state, *(_final(run, name) for name in metrics)]
        cells = tag("td", _link(run, out), ["words", "code"]) + "".join(tag("td", escape(text)) for text in words)
        command = tag("td", escape(command_of(run, analysis)), ["words", "code", "command"], colspan=str(len(heads)))
        lines += [tag("tr", cells, ["quiet"] if run in others else []), tag("tr", command)]
    plural = "run" if len(runs) == 1 else "runs"
    tried = f" at {len(row.variant.trials)} tuned values" if len(row.variant.trials) > 1 else ""
    return tag("details", tag("summary", f"{len(runs)} {plural}{tried}, with commands") + tag("table", "".join(lines)))


def _final(run: Run, metric: str) -> str:
    value, of = run.record.final(metric), quantity(metric)
    return significant(value * of.scale, 4 if of.unit == "%" else 3) if math.isfinite(value) else MISSING


def _link(run: Run, out: Path) -> str:
    """The run's name, leading to its folder where there is one."""
    if not run.record.folder.is_dir():
        return escape(run.cell.run)
    way = Path(os.path.relpath(run.record.folder, out)).as_posix()
    return tag("a", escape(run.cell.run), href=f"{quote(way)}/")
