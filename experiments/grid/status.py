"""How the runs of a store stand, grid by grid."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.escape import visible
from commeff.experiments.grid.plan.cells import distinguishing_labels, in_words
from commeff.experiments.run.reading import read_mapping, run_name
from commeff.experiments.run.store import COUNTS, STATES, RunFolder, check_version

FACTS = ("step", "steps", "origin", "error", "reason", "host", "pid", *COUNTS)


def status(store: Path) -> dict[str, Any]:
    """{grid: {"states": how many are in which state, "preemptions": of all its cells, "cells": one line each}}.

    Runs of no grid are under "", a name no grid has.
    """
    if not store.is_dir():
        raise ConfigError([f"no store {store}; `commeff grid` and `commeff train` make one, or name it with --store"])
    check_version(store)
    grids = {path.stem: _words(_cells(path)) for path in sorted((store / "grids").glob("*.json"))}
    listed = {run for cells in grids.values() for run, _ in cells}
    if others := sorted({path.parent.name for path in store.glob("*/status.json")} - listed):
        grids[""] = [(run, "") for run in others]
    table = {}
    for name, cells in grids.items():
        lines = [_line(RunFolder(store / run)) | {"what": what} for run, what in cells]
        counts = Counter(line["state"] for line in lines)
        states = {state: counts[state] for state in STATES if counts[state]}
        preemptions = sum(line.get("preemptions", 0) for line in lines)
        table[name] = {"states": states, "preemptions": preemptions, "cells": lines}
    return table


def _cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a grid file of the store, each a folder in it; warns of a file that is no grid."""
    cells: list[dict[str, Any]] = []
    try:
        listed = read_mapping(path).get("cells")
        if not isinstance(listed, list):
            raise ValueError("it lists no cells")
        for cell in listed:
            if not isinstance(cell, dict) or not isinstance(cell.get("run"), str):
                raise ValueError("a cell of it names no run")
            cells.append(cell | {"run": run_name(cell["run"])})
    except (OSError, ValueError) as error:
        print(f"commeff: {visible(f'{path} cannot be read as a grid: {error}')}", file=sys.stderr)
    return cells


def _words(cells: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Each run, and its cell in words; "" where its grid has no labels for it."""
    labels: list[dict[str, Any]] = [cell["labels"] if isinstance(cell.get("labels"), dict) else {} for cell in cells]
    names = [str(cell["name"]) if cell.get("name") else None for cell in cells]
    texts = [{key: str(value or "") for key, value in row.items()} for row in labels]
    rows = zip(cells, texts, names, distinguishing_labels(zip(names, texts, strict=True)), strict=True)
    return [
        (cell["run"], in_words(distinct, name, cell.get("seed", 0)) if row else "")
        for cell, row, name, distinct in rows
    ]


def _line(folder: RunFolder) -> dict[str, Any]:
    """One line on a run: its state, step, what went wrong."""
    facts, state = folder.read("status.json"), folder.state
    state = "running" if state == "queued" and folder.busy else state
    return {"run": folder.path.name, "state": state, **{key: facts[key] for key in FACTS if facts.get(key) is not None}}


def print_status(table: dict[str, Any], everything: bool) -> None:
    """States in numbers, then the cells that a reader may want to act on (or all)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for name, grid in table.items():
        counts = ", ".join(f"{count} {state}" for state, count in grid["states"].items())
        preempted = f"; {_times(grid['preemptions'])}" if grid["preemptions"] else ""
        console.print(Text(visible(f"{name or 'runs of no grid'}: {counts}{preempted}")))
        listing = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for cell in grid["cells"]:
            if everything or cell["state"] not in ("done", "queued"):
                where = f"{cell['step']}/{cell['steps']}" if "step" in cell and "steps" in cell else ""
                words = [cell[key] for key in ("what", "error", "reason") if key in cell]
                words += [f"from {cell['origin']}"] if "origin" in cell else []
                words += [_times(cell["preemptions"])] if "preemptions" in cell else []
                run = Text(visible(cell["run"]))
                listing.add_row("", cell["state"], where, run, *(Text(visible(w), overflow="fold") for w in words))
        if listing.row_count:
            console.print(listing)


def _times(preemptions: int) -> str:
    """
    >>> _times(1), _times(3)
    ('preempted once', 'preempted 3 times')
    """
    return "preempted once" if preemptions == 1 else f"preempted {preemptions} times"
