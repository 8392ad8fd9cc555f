"""The one writer of tables: a `Table` as Markdown, LaTeX, HTML, CSV, or text on a terminal.

>>> table = Table.of([{"method": "psgd", "loss": 0.123456}, {"method": "top_k", "loss": 2.0}], digits=4)
>>> print("\\n".join(markdown(table)))
| method | loss |
|:--|--:|
| psgd | 0.1235 |
| top\\_k | 2 |
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pandas as pd

from commeff.experiments.escape import html_text, markdown_text, visible

LONG_HTML = 36  # characters from which a cell of words may be broken into lines
UNATTENDED = 1000  # characters a line where there is no terminal: more than any line has
NARROW = 24  # characters of the first column on a terminal, at least


@dataclass(frozen=True)
class Item:
    """One cell.

    Parameters
    ----------
    text : what is printed.
    half : the half width of the interval, printed behind ±.
    value : what sorting goes by.
    best : to be printed bold.
    mark : a sign behind the number, explained in the table's notes.
    quiet : to be printed pale.
    """

    text: str
    half: str = ""
    value: float | None = None
    best: bool = False
    mark: str = ""
    quiet: bool = False

    @property
    def plain(self) -> str:
        """The cell as text.

        >>> Item("95.1", "1.2", mark="†").plain
        '95.1 ± 1.2†'
        """
        return self.text + (f" ± {self.half}" if self.half else "") + self.mark


@dataclass(frozen=True)
class Column:
    """A heading, a second line for units and the like, the cells, and whether they hold numbers or words."""

    heading: str
    under: str = ""
    items: Sequence[Item] = ()
    words: bool = False
    code: bool = False
    brief: bool = True  # shown on a terminal and in LaTeX too
    printed: bool = True  # in LaTeX


@dataclass(frozen=True)
class Table:
    """Columns with equally many cells; `data` has the numbers with all their digits, for the CSV file."""

    name: str
    title: str
    columns: Sequence[Column]
    notes: Sequence[str] = ()
    data: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    kind: str = ""  # its name but for the task, where there are several

    @property
    def rows(self) -> list[tuple[Item, ...]]:
        """The cells line by line."""
        return [*zip(*(column.items for column in self.columns), strict=True)]

    def marked(self, columns: Sequence[Column] | None = None) -> list[str]:
        """The notes on marks that stand in some columns; in any, unless they are given."""
        shown = self.columns if columns is None else columns
        marks = {sign for column in shown for item in column.items for sign in item.mark[:2]} - {" ", "("}
        return [note for note in self.notes if note[:1] in marks]

    @classmethod
    def of(
        cls,
        records: Iterable[Mapping[str, Any]],
        digits: int | None = None,
        *,
        name: str = "",
        forms: Mapping[str, str] | None = None,
        data: pd.DataFrame | None = None,
    ) -> Self:
        """A table without a title from records with equal keys.

        Parameters
        ----------
        records : one a row; the keys of the first are the headings.
        digits : significant digits of fractions; None: as Python writes them.
        name : of its file.
        forms : how the numbers of a column are written, where otherwise: {"ratio": ".3f"}.
        data : of its file; the records unless given.
        """
        lines = [dict(record) for record in records]
        names = list(lines[0]) if lines else []
        numbers = {name for name in names if all(isinstance(line[name], (int, float)) for line in lines)}

        def item(heading: str, value: Any) -> Item:
            plain = f".{digits}g" if digits and isinstance(value, float) else ""
            return Item(f"{value:{'' if isinstance(value, str) else (forms or {}).get(heading, plain)}}")

        columns = [
            Column(heading, items=[item(heading, line[heading]) for line in lines], words=heading not in numbers)
            for heading in names
        ]
        return cls(name, "", columns, data=pd.DataFrame(lines) if data is None else data)


def markdown(table: Table) -> list[str]:
    r"""The lines of a Markdown table, without its title and notes.

    >>> print("\n".join(markdown(Table("t", "", [Column("loss", "mean", [Item("1.0", "0.1", best=True)])]))))
    | loss (mean) |
    |--:|
    | **1.0** ± 0.1 |
    """
    heads = [f"{column.heading} {f'({column.under})' if column.under else ''}".strip() for column in table.columns]
    rule = "|".join(":--" if column.words else "--:" for column in table.columns)
    cells = [[_markdown_cell(item) for item in row] for row in table.rows]
    head, *rows = [f"| {' | '.join(line)} |" for line in [[markdown_text(head) for head in heads], *cells]]
    return [head, f"|{rule}|", *rows]


def _markdown_cell(item: Item) -> str:
    text = f"**{markdown_text(item.text)}**" if item.best else markdown_text(item.text)
    return text + (f" ± {item.half}" if item.half else "") + item.mark


def tag(name: str, body: str, kinds: Sequence[str] = (), **attributes: str) -> str:
    """An HTML element; `body` is markup, attributes are text.

    >>> tag("td", "<b>1</b>", ["quiet"], title='"a"')
    '<td class="quiet" title="&quot;a&quot;"><b>1</b></td>'
    """
    all_attributes = ({"class": " ".join(kinds)} if kinds else {}) | attributes
    opened = "".join(f' {key.replace("_", "-")}="{html_text(value)}"' for key, value in all_attributes.items())
    return f"<{name}{opened}>{body}</{name}>"


def html(table: Table, before: Callable[[str], str] = lambda first: "") -> str:
    """The table with its notes and its file; markup may stand `before` the first cell of a line, by its text."""
    lines = [tag("tr", html_cells(table, items, before(items[0].text))) for items in table.rows]
    return html_frame(table, "plain", [tag("tbody", line) for line in lines])


def html_frame(table: Table, kind: str, bodies: Sequence[str]) -> str:
    """Bodies (a line each, so that they can be sorted) in a box that scrolls, with the notes and the file below."""
    sort = {"data_sort": "1"} if len(bodies) > 2 else {}
    heads = [
        tag(
            "th",
            html_text(column.heading) + (tag("small", html_text(column.under)) if column.under else ""),
            ["words"] if column.words else [],
            scope="col",
            **sort,
        )
        for column in table.columns
    ]
    head = tag("thead", tag("tr", "".join(heads)))
    box = tag("div", tag("table", "\n".join([head, *bodies]), [kind]), ["box"], tabindex="0")
    notes = "".join(tag("p", html_text(note)) for note in table.notes)
    link = tag("a", f"{table.name}.csv", href=f"figures/{table.name}.csv")
    file = "" if table.data.empty else tag("p", link, ["files"])
    return "\n".join([box, tag("div", notes, ["notes"]) if notes else "", file])


def html_cells(table: Table, items: Sequence[Item], before: str = "") -> str:
    """The cells of a line; markup `before` the first."""
    return "".join(
        _html_cell(column, item, before if i == 0 else "", headed=i > 0)
        for i, (column, item) in enumerate(zip(table.columns, items, strict=True))
    )


def _html_cell(column: Column, item: Item, before: str, headed: bool) -> str:
    long = column.words and len(item.text) > LONG_HTML
    kinds = {"words": column.words, "quiet": item.quiet, "code": column.code}
    kinds |= {"command": long and column.code, "wrap": long and not column.code}
    text = tag("b", html_text(item.text)) if item.best else html_text(item.text)
    if item.half:
        text += tag("span", f"± {html_text(item.half)}", ["half"])
    if item.mark:
        text += tag("span", html_text(item.mark), ["mark" if len(item.mark) == 1 else "aside"])
    finite = item.value is not None and math.isfinite(item.value)
    value = {"data_value": repr(item.value)} if finite else {}
    head = {"data_head": f"{column.heading} {column.under}".strip()} if headed else {}  # narrow pages show it
    return tag("td", before + text, [kind for kind, is_so in kinds.items() if is_so], **value, **head)


def print_table(table: Table, width: int | None = None) -> None:
    """The columns that matter most and have room, on stdout, and what their marks mean; the page has all of them.

    A number is never cut: where a terminal is narrow, names are folded, and then the last columns left out.

    Parameters
    ----------
    width : characters of a line; the terminal's unless given, and as many as it takes where there is none.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    console = Console(width=width or (None if sys.stdout.isatty() else UNATTENDED), highlight=False)
    brief = [column for column in table.columns if column.brief]
    heads = [(visible(column.heading), visible(column.under)) for column in brief]
    cells = [[visible(item.plain) for item in column.items] for column in brief]
    letters = [max(map(len, (*head, *column))) for head, column in zip(heads, cells, strict=True)]
    while (
        len(brief) > 2 and min(letters[0], NARROW) + sum(count + 2 for count in letters[1 : len(brief)]) > console.width
    ):
        brief.pop()
    title = Text(visible(table.title))
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="bold")
    for place, column in enumerate(brief):
        head = Text("\n".join(heads[place]).strip(), justify="left" if column.words else "right")
        grid.add_column(head, justify=head.justify or "default", no_wrap=place > 0, overflow="fold")
    for row in zip(*(column.items for column in brief), strict=True):
        if any(item.plain for item in row[1:]):  # else it is a line of what has no room
            styles = ("bold" if item.best else "dim" if item.quiet else "" for item in row)
            grid.add_row(*(Text(visible(item.plain), style) for item, style in zip(row, styles, strict=True)))
    console.print(grid)
    for note in table.marked(brief):
        console.print(Text(visible(note)))
