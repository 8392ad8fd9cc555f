"""A table on a terminal."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from commeff.experiments.report.data.tables import Table

UNATTENDED = 140  # characters a line where there is no terminal


def print_table(table: Table) -> None:
    """The columns that matter most; all of them are in the page and the CSV file."""
    shown = [i for i, column in enumerate(table.columns) if column.brief]
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=table.title, title_justify="left", title_style="bold")
    for i in shown:
        column = table.columns[i]
        grid.add_column(
            f"{column.heading}\n{column.under}".strip(), justify="left" if column.words else "right", no_wrap=True
        )
    for row in table.rows:
        grid.add_row(
            *(Text(row[i].plain, style="bold" if row[i].best else "dim" if row[i].quiet else "") for i in shown)
        )
    Console(width=None if sys.stdout.isatty() else UNATTENDED, highlight=False).print(grid)
