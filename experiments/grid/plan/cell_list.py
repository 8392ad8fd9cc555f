"""cells.jsonl: the cells of a grid as they were composed, so that another machine runs the same.

The first line names the grid, every other line is a cell with its resolved configuration. Nothing is composed again
when such a file is run, and a plug-in that has changed in between is noticed. The file is data: who runs it names its
plug-ins again, as the scripts do that are written beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commeff.experiments.config.registry import UnknownPart, known, targets_in
from commeff.experiments.config.schema import ConfigError, current
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.naming import run_id
from commeff.files import rewrite

SUFFIX = ".jsonl"
VERSION = 2  # of the file
PARTS = ("number", "labels", "name", "settings", "config", "checkpoint", "apart")  # of a cell


@dataclass(frozen=True)
class CellList:
    """Cells of a grid, listed to be run elsewhere.

    Attributes
    ----------
    name, title : of the grid.
    store : the folder of its runs.
    cells : in the order of the grid.
    """

    name: str
    title: str
    store: Path
    cells: tuple[Cell, ...]

    @property
    def unknown(self) -> list[str]:
        """A line for each name in the cells that this command does not know."""
        targets = {str(target): target for cell in self.cells for target in targets_in(cell.config)}
        return [str(UnknownPart(target)) for target in targets.values() if not known(target)]


def write_cells(path: Path, listed: CellList) -> None:
    """Write a list, with the full path of the store."""
    head = {"version": VERSION, "name": listed.name, "title": listed.title, "store": str(listed.store.absolute())}
    lines: list[dict[str, Any]] = [head]
    lines += [{"run": cell.folder.name} | {part: getattr(cell, part) for part in PARTS} for cell in listed.cells]
    rewrite(path, "".join(json.dumps(line) + "\n" for line in lines))


def read_cells(path: Path) -> CellList:
    """Read a list that `write_cells` has written."""
    try:
        head, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if head["version"] != VERSION:
            raise ConfigError([f"cell list {path} has version {head['version']}, this commeff knows {VERSION}"])
        store = Path(head["store"])
        if not all(_harmless(line) for line in lines):
            raise TypeError
        parts = [{part: line[part] for part in PARTS} | {"config": current(line["config"])} for line in lines]
        cells = [Cell(**values, folder=store / line["run"]) for values, line in zip(parts, lines, strict=True)]
        return CellList(head["name"], head["title"], store, tuple(cells))
    except OSError as error:
        raise ConfigError([f"cell list {path} cannot be read: {error.strerror}"]) from None
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError, UnicodeDecodeError):
        raise ConfigError([f"cell list {path} is damaged; write it anew with --launcher sbatch"]) from None
    except ConfigError:
        raise
    except ValueError:  # no line at all
        raise ConfigError([f"cell list {path} is empty; write it anew with --launcher sbatch"]) from None


def _harmless(line: Mapping[str, Any]) -> bool:
    """Whether a run is a folder in its store, and no setting is an option of the command that it becomes a word of."""
    run, settings = line["run"], line["settings"]
    options = [key for key in settings if key.startswith("-")]
    return Path(run).name == run != ".." and isinstance(line["config"], dict) and not options


def changed(cells: Sequence[Cell]) -> list[str]:
    """The cells that would not be the runs that were planned, because their plug-ins have changed since."""
    return [
        f"cell {cell.number} ({cell.title}): its plug-in has changed since the cells were listed; list them anew"
        for cell in cells
        if run_id(cell.config) != cell.folder.name
    ]
