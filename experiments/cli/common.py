"""Shared by the commands: arguments, printing of refusals and tables, checks of output files."""

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
STUDIES = "commeff.experiments.studies"  # not part of a wheel

Settings = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE")]
Plugins = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="Your file or module with parts of your own; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Store = Annotated[Path, typer.Option(help="The folder with one folder per run.")]
Minutes = Annotated[
    float | None, typer.Option(help="Stop after this time with checkpoints, and say what is left.  [default: no limit]")
]


def deadline(minutes: float | None) -> float:
    """The value of `time.monotonic()` so many minutes from now; infinite for None.

    >>> deadline(None)
    inf
    """
    if minutes is not None and not minutes > 0:
        raise ValueError(f"--minutes must be more than 0, got {minutes:g}; leave it out to go on until all is done")
    return math.inf if minutes is None else time.monotonic() + 60 * minutes


@contextmanager
def refusals() -> Iterator[None]:
    """Report each reason why a command cannot run in one line, with exit code 2."""
    try:
        yield
        return
    except (ValueError, ProcessEnding) as error:
        reasons = str(error).splitlines() or [type(error).__name__]
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in FULL or isinstance(error, FileExistsError):
            reason = f"cannot be written ({reason})"
        reasons = [f"{error.filename}: {reason}" if error.filename else reason]
    except ModuleNotFoundError as error:
        if error.name != STUDIES:
            raise
        reasons = ["this command runs from a checkout of commeff's repository: the installed package does not hold it"]
    for line in reasons:
        complain(line)
    raise typer.Exit(2)


@contextmanager
def deaths() -> Iterator[None]:
    """Report the death of a participating process in one line, with exit code 1."""
    try:
        yield
    except RuntimeError as error:
        complain(str(error))
        raise typer.Exit(1) from None


def complain(line: str) -> None:
    """Print an error in one line on stderr."""
    middle = f" ... ({len(line) - 2 * LONGEST:,} characters more) ... " if len(line) > 3 * LONGEST else ""
    short = line[:LONGEST] + middle + line[-LONGEST:] if middle else line
    typer.echo(f"commeff: {visible(short)}", err=True)


def adopted(plugins: list[str] | None) -> list[Choice]:
    """The choices added by the named plug-ins and by those of installed packages."""
    from commeff.experiments.config.plugins import ENTRY_POINTS, adopt

    if not plugins and not entry_points(group=ENTRY_POINTS):
        return []
    choices, complaints = adopt(plugins or [])
    for complaint in complaints:
        complain(complaint)
    return choices


def report(rows: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values: a table, or JSON."""
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
    """Print columns, those of `texts` left-aligned and the others right-aligned, never cut; then an empty line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, head in enumerate(heads):
        drawn.add_column(Text(visible(head)), justify="left" if number in texts else "right", no_wrap=True)
    for line in lines:
        drawn.add_row(*(Text(visible(word)) for word in line))
    console = Console(width=WIDE)
    with console.capture() as printed:
        console.print(drawn)
    typer.echo("\n".join(map(str.rstrip, printed.get().split("\n"))))


def entries(rows: Mapping[str, Mapping[str, str]], note: str) -> None:
    """Print each name with its line (that of key ""), its other lines "key: line" indented, and at the end a note."""
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
    """Characters per line: those of the terminal; output to a pipe or file is never wrapped."""
    return None if sys.stdout.isatty() else WIDE


def format_value(value: Any) -> str:
    """A readable number: counts and bytes with all digits, measurements with six."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def try_folder(option: str, path: Path | None) -> None:
    """Refuse a folder that cannot be made or written into.

    Raises
    ------
    ValueError
        With the reason.
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


def try_file(option: str, path: Path | None, figure: bool = False) -> None:
    """Refuse a file that cannot be written, and a figure's whose ending is not that of one.

    Raises
    ------
    ValueError
        With the reason.
    """
    if path is None:
        return
    if figure and path.suffix not in FIGURES:
        raise ValueError(f"{option} must end with one of {' '.join(FIGURES)}, got {path}")
    if path.is_dir():
        raise ValueError(f"{option} must be a file, got the folder {path}; give it a name in there")
    if path.exists() and not os.access(path, os.W_OK):
        raise ValueError(f"{option} {path} cannot be written (it is read-only); choose another")
    try_folder(f"the folder of {option}", path.parent)
