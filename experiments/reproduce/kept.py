"""`--records`: training takes finished runs from a file, and leaves those it has finished there, however it ends."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.reproduce import runs
from commeff.experiments.reproduce.observing import TableRun
from commeff.experiments.run import archive

UNKEPT = 2  # exit code: the file could not be written


def take(plan: TableRun, file: Path) -> list[str]:
    """Put the runs of a file into the store of a table; a line if some of them are none of the table's."""
    found = archive.unpack(file, plan.store)
    own = [name for name in found if name in plan.runs]
    if len(own) == len(found):
        return []
    what = f"{len(own)} of the {len(found)} runs in {file} belong to this table at scale {plan.table.scale}"
    return [f"{what}, with these settings and this data; the others stay in it"]


def train(plan: TableRun, file: Path) -> runs.Trained:
    """Train what is not finished. The file is written also where time was over, and where training ends by an error or
    Ctrl-C; such an end is the one that is told."""
    lines, folders = take(plan, file), [plan.store / name for name in sorted(plan.runs)]
    try:
        trained = runs.train(plan)
    except BaseException:
        with suppress(ConfigError):
            archive.pack(file, folders)
        raise
    trained = replace(trained, lines=[*lines, *trained.lines])
    try:
        archive.pack(file, folders)
    except ConfigError as error:
        return replace(trained, faults=error.faults, exit_code=UNKEPT)
    return trained
