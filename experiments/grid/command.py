"""`commeff grid`: the requested cells, what they will cost, running them, and their states."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from commeff.experiments.config.plugins import Choice, adopt
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.local.scheduler import Launch, Limits, Scheduler
from commeff.experiments.grid.local.server import ForkServer
from commeff.experiments.grid.local.view import Watch, clock
from commeff.experiments.grid.plan.cell_list import SUFFIX, CellList, changed, read_cells
from commeff.experiments.grid.plan.cells import (
    Cell,
    check_space,
    keep_only,
    keep_shard,
    only_faults,
    rates,
    seconds_of,
    shard_faults,
    store_faults,
    total,
)
from commeff.experiments.grid.plan.spec import MAX_CELLS, Grid, read_grid, words_of
from commeff.experiments.run.progress import opening
from commeff.experiments.run.store import BAD, FINISHED, STATES, RunFolder, stamp
from commeff.files import rewrite, unlinked

JUDGED = "judged by finished cells"
MOST_JOBS = 1024
VERSION = 1  # of grids/NAME.json


@dataclass(frozen=True)
class Request:
    """The arguments of `commeff grid`.

    Attributes
    ----------
    file : a grid file, or a cell list.
    overrides : `key=value` words for the base of the grid file.
    store : the folder of runs; None: runs/NAME.
    plugins, choices : plug-in files, and what they add.
    only, shard : which cells.
    limits : how many at a time, how long, how many failures.
    launch : starts the processes of cells that have several; None: the cells do.
    max_cells : how many cells the file may have.
    """

    file: Path
    overrides: Sequence[str] = ()
    store: Path | None = None
    plugins: Sequence[str] = ()
    choices: Sequence[Choice] = ()
    only: Sequence[str] = ()
    shard: str | None = None
    limits: Limits = field(default_factory=lambda: Limits(jobs=1))
    launch: Launch | None = None
    max_cells: int = MAX_CELLS

    @cached_property
    def grid(self) -> Grid:
        """The grid file, read once."""
        return read_grid(self.file, self.overrides, self.max_cells)

    @cached_property
    def listed(self) -> CellList | None:
        """The cells of a list that `--launcher sbatch` has written; None for a grid file."""
        return read_cells(self.file) if self.file.suffix == SUFFIX else None

    @property
    def name(self) -> str:
        """The grid's name."""
        return self.listed.name if self.listed else self.file.stem

    @property
    def command(self) -> str:
        """The command that makes the store again."""
        files = [word for plugin in self.plugins for word in ("--plugin", plugin)]
        place = ["--store", str(self.store)] if self.store else []
        return shlex.join(["commeff", "grid", str(self.file), *self.overrides, *files, *place])

    @property
    def place(self) -> Path:
        """The store: the given one, or runs/NAME."""
        return self.listed.store if self.listed else self.store or Path("runs") / self.file.stem


@dataclass(frozen=True)
class Outcome:
    """The states of the requested cells; `interrupted`: somebody stopped the runner; `left`: runs past the deadline."""

    cells: Sequence[Cell]
    states: dict[str, str]
    interrupted: bool = False
    left: Collection[str] = ()

    @property
    def counts(self) -> dict[str, int]:
        """How many cells are in which state."""
        counts = Counter(self.states.values())
        return {state: counts[state] for state in STATES if counts[state]}

    @property
    def exit_code(self) -> int:
        """130 interrupted, 1 if a cell failed or is missing, 0 if all are finished or left over."""
        if self.interrupted:
            return 130
        return 0 if all(state in FINISHED or run in self.left for run, state in self.states.items()) else 1


def check(request: Request) -> None:
    """Refuse what can be seen without importing what cells train: the file, settings that are wrong in all cells, and
    options if settings are not. What some cells lack is left to `prepare`, which also says what does not fit in others.
    """
    if request.listed is not None:
        return
    from commeff.experiments.grid.plan.expand import check_settings, unmeasured  # with hydra

    options = [*_limit_faults(request.limits), *shard_faults(request.shard)]
    options += [*only_faults(request.grid, request.only), *unmeasured(request.grid)]
    faults, some_good = check_settings(request.grid, request.choices, every=bool(options))
    if faults and not some_good:
        raise ConfigError([*options, *faults, *store_faults(request.place)])
    if options and not faults:
        raise ConfigError(options)


def _limit_faults(limits: Limits) -> list[str]:
    faults = [f"-j must be at least 1 and at most {MOST_JOBS}, got {limits.jobs}"] * (not 1 <= limits.jobs <= MOST_JOBS)
    faults += [f"--timeout must be seconds, or 0 for none, got {limits.timeout:g}"] * (not limits.timeout >= 0)
    faults += [f"--max-failures must be at least 0, got {limits.max_failures}"] * (limits.max_failures < 0)
    return faults


def prepare(request: Request, rehearsed: bool = True) -> tuple[list[Cell], list[Cell]]:
    """All cells of the grid, and the requested ones; nothing runs, nothing is written."""
    faults = _limit_faults(request.limits)
    cells: list[Cell] = []
    chosen: list[Cell] = []
    try:
        cells = _cells(request, rehearsed)
        chosen = keep_shard(keep_only(cells, request.only), request.shard)
        if request.listed and rehearsed:
            faults += [*changed(chosen), *store_faults(request.place)]
        if rehearsed and not faults:
            check_space(request.place, chosen, request.limits.jobs)
    except ConfigError as error:
        faults += error.faults
    if faults:
        raise ConfigError(faults)
    return cells, chosen


def _cells(request: Request, rehearsed: bool) -> list[Cell]:
    """The cells of the file; `ConfigError` with everything that is wrong with any of them."""
    if request.listed is None:
        from commeff.experiments.grid.plan.expand import expand, rehearse, unmeasured  # with hydra

        if request.choices:
            adopt(request.plugins)  # this may be another process than the one that parsed the command
        grid = request.grid
        cells, faults = expand(grid, request.place, request.choices)
        if cells and (grid.target or grid.select):
            faults += unmeasured(grid, cells)
        if rehearsed:
            cells, refusals = rehearse(cells)
            faults += refusals
        faults += store_faults(request.place)
        if faults:
            raise ConfigError(faults)
        return cells
    added = [f"{word!r}" for word in request.overrides] + ["--store"] * (request.store is not None)
    if added:
        raise ConfigError([f"{', '.join(added)}: the cells of {request.file.name} are settled; change the grid file"])
    if unknown := request.listed.unknown:
        raise ConfigError([f"{request.file.name}: {line}" for line in unknown])
    return list(request.listed.cells)


def dry_run(request: Request) -> tuple[list[dict[str, object]], str]:
    """One row per cell, with its state and about how long it will take; and the cost of all of them in words.

    Where no cell has run, a few steps of each kind of cell say it.
    """
    from commeff.experiments.grid.plan.trial import tried

    cells, chosen = prepare(request)
    per_step, judged = rates(cells), JUDGED
    if not per_step:
        per_step, count = tried(cell for cell in chosen if not cell.finished)
        judged = f"judged by a few steps of {count} kind{'s' * (count != 1)} of cells, one after the other"
    rows: list[dict[str, object]] = []
    for cell in chosen:
        state = RunFolder(cell.folder).state
        seconds = None if state in FINISHED else seconds_of(cell, per_step)
        row = {"cell": cell.number, "run": cell.folder.name, "what": cell.title, "state": state, "seconds": seconds}
        rows.append(row | {"command": cell.command(request.plugins)})
    return rows, cost(chosen, per_step, request.limits.jobs, judged)


def standing(cells: Sequence[Cell], jobs: int) -> str:
    """The number of finished runs in words, and the time of the others by the seconds of all that have begun."""
    left = [cell for cell in cells if not cell.finished]
    done = f"{len(cells) - len(left)} of {len(cells)} runs done"
    if not left:
        return done
    begun = sum(RunFolder(cell.folder).read("status.json").get("step", 0) > 0 for cell in left)
    seconds = total(left, rates(cells), jobs)
    hours = f", about {clock(seconds)} with -j {jobs}" if seconds else ""
    return f"{done}, {len(left)} left ({begun} of them begun){hours}; the same command goes on"


def cost(chosen: Sequence[Cell], per_step: Mapping[str, float], jobs: int, judged: str = JUDGED) -> str:
    """The remaining work in words; `judged` names the basis of the estimate."""
    unfinished = [cell for cell in chosen if not cell.finished]
    counts = f"{len(chosen)} cells, {len(chosen) - len(unfinished)} finished, {len(unfinished)} to run with -j {jobs}"
    if not unfinished:
        return counts
    seconds = total(unfinished, per_step, jobs)
    estimate = f"about {clock(seconds)}, {judged}" if seconds else "no time estimate yet"
    return f"{counts}; {estimate}"


def run(request: Request) -> Outcome:
    """Run the unfinished cells."""
    server = ForkServer()
    scheduler = Scheduler(request.limits, server, request.launch, request.plugins)
    cells, chosen = prepare(request) if request.listed else server.call(prepare, request)
    title = describe(request, cells)
    unfinished, damages = _unfinished(chosen)
    remaining = total(unfinished, rates(cells), request.limits.jobs)
    with Watch(unfinished, request.plugins, remaining) as watch:
        watch.say(f"{title}: {cost(chosen, rates(cells), request.limits.jobs)}; store {request.place}")
        for line in (*server.call(opening, [cell.config for cell in unfinished]), *damages):
            watch.say(line)
        scheduler.run(unfinished, watch)
    states = _states(chosen)
    interrupted = scheduler.interrupts > 0 and not {*states.values()} <= {*FINISHED}
    states |= {run: state for run, state in scheduler.states.items() if state in BAD}
    return Outcome(chosen, states, interrupted, scheduler.left)


def _unfinished(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """The cells to run, and a line for each finished one whose records are damaged: it runs once its folder is gone."""
    unfinished, damages = list[Cell](), list[str]()
    for cell in cells:
        try:
            if RunFolder(cell.folder).result(cell.config) is None:
                unfinished.append(cell)
        except ConfigError as error:
            damages += error.faults
    return unfinished, damages


def collect(request: Request) -> Outcome:
    """The states of the cells, whoever ran them."""
    cells, chosen = prepare(request, rehearsed=False)
    describe(request, cells)
    return Outcome(chosen, _states(chosen))


def describe(request: Request, cells: Sequence[Cell]) -> str:
    """Write STORE/grids/NAME.json: which runs of the store belong to the grid, and their labels. Returns its title.

    A cell list needs none: the grid was described when its cells were listed.
    """
    if request.listed:
        return request.listed.title
    grid = request.grid
    described = [
        {
            "run": cell.folder.name,
            "seed": cell.seed,
            "labels": dict(cell.labels),
            "name": cell.name,
            "settings": words_of(cell.settings),
        }
        for cell in cells
    ]
    head = {"version": VERSION, "name": grid.name, "title": grid.title, "command": request.command}
    rules = {"select": grid.select, "target": grid.target, "baseline": grid.baseline, "clusters": grid.clusters}
    stamp(request.place)
    unlinked(request.place / "grids").mkdir(exist_ok=True)
    content = json.dumps(head | rules | dict(grid.shown) | {"cells": described}, indent=1, default=str) + "\n"
    rewrite(request.place / "grids" / f"{grid.name}.json", content, shared=True)
    return grid.title


def _states(cells: Sequence[Cell]) -> dict[str, str]:
    return {cell.folder.name: RunFolder(cell.folder).state for cell in cells}
