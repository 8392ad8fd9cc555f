"""The display of a running grid on stderr: one live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from commeff.experiments.escape import visible
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.progress import quality
from commeff.experiments.run.reading import read_text
from commeff.experiments.run.store import BAD, RunFolder

if TYPE_CHECKING:
    from commeff.experiments.grid.local.scheduler import Running

NOTHING = {"done": "nothing measured", "diverged": "nothing finite measured"}  # where there is no result
LAST_LINES = 4  # of a traceback
REFRESH = 0.25  # seconds


def clock(seconds: float) -> str:
    """Seconds in the units that people use.

    >>> clock(9.44), clock(75), clock(7320)
    ('9.4 s', '1:15 min', '2:02 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes}:{int(seconds) % 60:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d} h"


class _Quiet(Console):
    """A console that stops printing when nobody reads it any more: the cells go on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class Watch:
    """Counts the cells, and prints a line for each that ends: its result, or why it failed."""

    def __init__(self, cells: Sequence[Cell], plugins: Sequence[str], remaining: float | None) -> None:
        self.console = _Quiet(stderr=True, highlight=False, soft_wrap=True)
        self._total, self._plugins = len(cells), plugins
        self._states: Counter[str] = Counter()
        self._start, self._remaining = time.monotonic(), remaining
        self._live: Live | None = None
        self._drawn = 0.0

    def __enter__(self) -> Watch:
        if self.console.is_terminal:
            self._live = Live(console=self.console, auto_refresh=False, transient=True).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(None, None, None)

    def ended(self, cell: Cell, state: str, seconds: float, error: str) -> None:
        """Print one line; for a failure also the end of its traceback, and the command that runs it again."""
        self._states[state] += 1
        folder = RunFolder(cell.folder)
        status = folder.read("status.json")
        reason = error or status.get("error") or status.get("reason")
        result = reason if state in BAD else reason or quality(folder.read("summary.json"))
        outcome = result or NOTHING.get(state, "it goes on from a checkpoint")
        took = clock(seconds) if seconds else "by another runner"
        done = sum(self._states.values())
        self.say(f"[{done}/{self._total}] {cell.title}: {state}, {outcome}, {took}")
        if state in BAD:
            for line in last_lines(cell.folder):
                self.say(f"    {line}")
            self.say(f"    again: {cell.command(self._plugins)}")

    def tick(self, running: Sequence[Running], waiting: int, elsewhere: int) -> None:
        """Draw the table again, a few times a second at most."""
        if self._live is not None and time.monotonic() - self._drawn > REFRESH:
            self._drawn = time.monotonic()
            self._live.update(self._table(running, waiting, elsewhere), refresh=True)

    def say(self, line: str) -> None:
        """Print a line above the table."""
        self.console.print(Text(visible(line)))

    def _table(self, running: Sequence[Running], waiting: int, elsewhere: int) -> Group:
        table = Table.grid(padding=(0, 2, 0, 0))
        for run in running:
            steps = run.cell.config["steps"]
            bar = ProgressBar(total=steps, completed=run.step, width=20)
            took = clock(time.monotonic() - run.start)
            table.add_row(Text(run.cell.title), bar, f"{run.step}/{steps}", took, run.words(run.row))
        parts = [f"{count} {state}" for state, count in self._states.items()] + [f"{len(running)} running"]
        parts += [f"{waiting} waiting"] if waiting else []
        parts += [f"{elsewhere} run by others"] if elsewhere else []
        elapsed = time.monotonic() - self._start
        remaining = f", about {clock(max(0.0, self._remaining - elapsed))} left" if self._remaining else ""
        return Group(table, Text(f"{', '.join(parts)}; {clock(elapsed)}{remaining}"))


def last_lines(folder: Path) -> list[str]:
    """The last lines of a failed cell: of its traceback, or of what it printed before it died."""
    for name in ("error.txt", "log.txt"):
        with suppress(OSError):
            if lines := read_text(folder / name).rstrip().splitlines():
                return lines[-LAST_LINES:]
    return []
