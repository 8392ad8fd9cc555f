"""The progress of a run on stderr: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

BETWEEN_LINES = 10.0  # seconds, where there is no terminal
BETWEEN_REWRITES = 0.25  # seconds, in a notebook


@contextmanager
def reporter(steps: int, folder: Path, shown: bool = True) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """The function that a run calls after every step, with the steps done and the last row of measurements."""
    if not shown:
        yield lambda step, row: None
        return
    if "ipykernel" in sys.modules:
        yield _rewritten(steps, folder.name)
        print(file=sys.stderr)
        return
    if not sys.stderr.isatty():
        yield _plain(steps)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[quality]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(folder.name, total=steps, quality="")
        yield lambda step, row: bar.update(task, completed=step, quality=quality(row))


def _plain(steps: int) -> Callable[[int, dict[str, Any]], None]:
    last = time.monotonic()

    def show(step: int, row: dict[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last > BETWEEN_LINES:
            last = time.monotonic()
            with suppress(OSError):  # nobody reads any more; the run goes on
                print(f"step {step}/{steps} {quality(row)}", file=sys.stderr, flush=True)

    return show


def _rewritten(steps: int, name: str) -> Callable[[int, dict[str, Any]], None]:
    """One line that is written over and over, as notebooks show it."""
    last = 0.0

    def show(step: int, row: dict[str, Any]) -> None:
        nonlocal last
        if step == steps or time.monotonic() - last > BETWEEN_REWRITES:
            last = time.monotonic()
            print(f"\r{name}: step {step}/{steps} {quality(row)}", end="", file=sys.stderr, flush=True)

    return show


def quality(row: dict[str, Any]) -> str:
    """The last measurements in a few words.

    >>> quality({"train_loss": 0.25, "val_accuracy": 0.9})
    'train loss 0.25, val accuracy 0.900'
    """
    words = {"train_loss": "train loss {:.4g}", "val_accuracy": "val accuracy {:.3f}"}
    return ", ".join(text.format(row[name]) for name, text in words.items() if isinstance(row.get(name), (int, float)))
