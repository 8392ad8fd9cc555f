"""Tables of several columns on stdout."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from commeff.experiments.cli.common import WIDE
from commeff.experiments.escape import visible


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """The first column to the left, numbers to the right, and an empty line below; a line is never cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, head in enumerate(heads):
        drawn.add_column(Text(visible(head)), justify="right" if number else "left", no_wrap=True)
    for line in lines:
        drawn.add_row(*(Text(visible(word)) for word in line))
    Console(width=WIDE).print(drawn)
    typer.echo()
