"""What the commands share: arguments, printing of refusals and tables, trying where they will write."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from commeff.experiments.config.contained import ProcessEnding
from commeff.experiments.escape import visible
from commeff.files import FULL

if TYPE_CHECKING:
    from commeff.experiments.config.plugins import Choice

LONGEST = 1000  # characters of a line's beginning, and of its end
WIDE = 1000  # characters: more than any line has
FIGURES = (".pdf", ".png", ".svg")
STUDIES = "commeff.experiments.studies"  # which a wheel does not hold

Settings = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False)]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        show_default=False,
        help="A file or module of your own; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Store = Annotated[Path, typer.Option("--store", help="The folder that holds one folder a run.")]


Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes",
        help="After so many begin no more, stop what runs with checkpoints, and say what is left.  [default: no limit]",
        show_default=False,
    ),
]


def deadline(minutes: float | None) -> float:
    """When `time.monotonic()` says that so many minutes from now are over; infinite without any.

    >>> deadline(None)
    inf
    """
    if minutes is not None and not minutes > 0:
        raise ValueError(f"--minutes must be more than 0, got {minutes:g}; leave it out to go on until all is done")
    return math.inf if minutes is None else time.monotonic() + 60 * minutes


@contextmanager
def refusals() -> Iterator[None]:
    """What cannot be run is said in one line for each reason, with exit code 2."""
    try:
        yield
    except ValueError as error:
        for line in str(error).splitlines() or [type(error).__name__]:
            complain(line)
        raise typer.Exit(2) from None
    except OSError as error:
        reason = error.strerror or error
        if error.errno in FULL or isinstance(error, FileExistsError):
            reason = f"cannot be written ({reason})"
        complain(f"{error.filename}: {reason}" if error.filename else str(reason))
        raise typer.Exit(2) from None
    except ProcessEnding as error:
        complain(str(error))
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        if error.name != STUDIES:
            raise
        complain("this command runs from a checkout of commeff's repository: the installed package does not hold it")
        raise typer.Exit(2) from None


@contextmanager
def deaths() -> Iterator[None]:
    """A process that took part has died: one line, and exit code 1."""
    try:
        yield
    except RuntimeError as error:
        complain(str(error))
        raise typer.Exit(1) from None


def complain(line: str) -> None:
    """Print a line on stderr that says what is wrong."""
    middle = f" ... ({len(line) - 2 * LONGEST:,} characters more) ... " if len(line) > 3 * LONGEST else ""
    short = line[:LONGEST] + middle + line[-LONGEST:] if middle else line
    typer.echo(f"commeff: {visible(short)}", err=True)


def adopted(plugins: list[str] | None) -> list[Choice]:
    """The choices that plug-ins add: those that are named, and those of installed packages."""
    from commeff.experiments.config.plugins import ENTRY_POINTS, adopt

    if not plugins and not entry_points(group=ENTRY_POINTS):
        return []
    choices, complaints = adopt(plugins or [])
    for complaint in complaints:
        complain(complaint)
    return choices


def report(rows: Mapping[str, Any], as_json: bool) -> None:
    """Names and values on stdout: a table, or JSON."""
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(Text(visible(name)), Text(visible(format_value(value))))
    Console(soft_wrap=True, width=page_width()).print(table)


def table(heads: Sequence[str], lines: Sequence[Sequence[str]], texts: Sequence[int] = (0,)) -> None:
    """Columns on stdout, those of `texts` to the left and numbers to the right, and an empty line below; a line is
    never cut.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, head in enumerate(heads):
        drawn.add_column(Text(visible(head)), justify="left" if number in texts else "right", no_wrap=True)
    for line in lines:
        drawn.add_row(*(Text(visible(word)) for word in line))
    Console(width=WIDE).print(drawn)
    typer.echo()


def entries(rows: Mapping[str, Mapping[str, str]], note: str) -> None:
    """Names on stdout, each with a line, that of the name "", and indented lines "what: words"; then a note."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(soft_wrap=True, width=page_width())
    for name, row in rows.items():
        console.print(Text.assemble((visible(name), "bold"), f"  {visible(row[''])}"))
        for what, words in row.items():
            if what:
                console.print(Padding(Text(visible(f"{what}: {words}")), (0, 0, 0, 4), expand=False))
    console.print(Text(f"\n{note}", style="dim"))


def page_width() -> int | None:
    """Characters of a line: the terminal's; what is piped or written to a file is never folded."""
    return None if sys.stdout.isatty() else WIDE


def format_value(value: Any) -> str:
    """A number as one reads it: counts and bytes with all their digits, measurements with six."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def try_folder(option: str, path: Path | None) -> None:
    """Refuse a folder that cannot be written into, or made.

    Raises
    ------
    ValueError
        With what stands in the way.
    """
    if path is None:
        return
    place = next(place for place in (path, *path.absolute().parents) if os.path.lexists(place))
    if not place.is_dir():
        raise ValueError(f"{option} must be a folder, got {path}: {place} is none; choose another")
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be written ({error.strerror or error}); choose another") from None


def try_figure(option: str, path: Path | None) -> None:
    """Refuse a figure's file that cannot be written, or whose name does not say what kind of figure it is.

    Raises
    ------
    ValueError
        With what stands in the way.
    """
    if path is not None and path.suffix not in FIGURES:
        raise ValueError(
            f"{option} must end with one of {' '.join(FIGURES)}, got {path}: the ending says what kind of figure it "
            "is; give another name"
        )
    try_file(option, path)


def try_file(option: str, path: Path | None) -> None:
    """Refuse a file that cannot be written.

    Raises
    ------
    ValueError
        With what stands in the way.
    """
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{option} must be a file, got the folder {path}; give it a name in there")
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{option} {path} cannot be written (it is read-only); choose another")
    try_folder(f"the folder of {option}", path.parent)
