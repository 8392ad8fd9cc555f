"""`commeff reproduce`: run or measure what is missing, judge, and write the page."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.escape import one_line
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.reproduce.cases import listing, scales_of
from commeff.experiments.reproduce.judging import OFF, compare, judge, rehearse
from commeff.experiments.reproduce.reading import execute, table_code
from commeff.experiments.reproduce.results import TRAINING, Reproduced
from commeff.experiments.reproduce.table import PublishedTable, built_in_tables, find_table, read_table
from commeff.experiments.reproduce.verdicts import FAILS, shown
from commeff.experiments.run import archive
from commeff.experiments.run.naming import IRRELEVANT
from commeff.experiments.run.store import check_version
from commeff.files import unlinked
from commeff.require import did_you_mean

if TYPE_CHECKING:
    from commeff.experiments.reproduce.runs import TableRun

GIVEN = (*IRRELEVANT, "device")  # settings that the command may give
OUTSIDE = 3  # exit code: a claim fails, or a number is off


@dataclass(frozen=True)
class Arguments:
    """The arguments of `commeff reproduce`; `settings` are of GIVEN.

    They change no result but for `device`, which changes its last digits: runs on a GPU have names of their own.
    """

    table: str
    scale: str = "full"
    store: Path | None = None
    out: Path | None = None
    limits: Limits = field(default_factory=lambda: Limits(jobs=1))
    settings: Sequence[str] = ()
    records: Path | None = None  # the file of finished runs
    plugins: Sequence[str] = ()  # files and modules of the user's own parts
    choices: Sequence[Choice] = ()  # that these and installed packages add

    @property
    def path(self) -> Path:
        """The path of the table file."""
        return find_table(self.table)

    @property
    def place(self) -> Path:
        """The store: all scales of a table share one."""
        return self.store or Path("runs") / "reproduce" / self.path.stem

    @property
    def folder(self) -> Path:
        """The folder of the page."""
        return self.out or unlinked(unlinked(self.place / "pages") / self.scale)

    @property
    def command(self) -> str:
        """What makes the page again. Where data lie, and a file of finished runs, are everybody's own: left out."""
        device = [word for word in self.settings if word.startswith("device=")]
        plugins = [word for plugin in self.plugins for word in ("--plugin", plugin)]
        return shlex.join(["commeff", "reproduce", self.table, *device, *plugins, "--scale", self.scale])

    def check(self) -> None:
        """Refuse what cannot run before anything does."""
        trains = self.content.measure == TRAINING
        if self.records is not None:
            archive.check(self.records)
            if not trains:
                raise ConfigError([f"{self.table} trains nothing that --records could keep; leave it out"])

    @cached_property
    def content(self) -> PublishedTable:
        """The table, read and rehearsed; refuses settings that would change results."""
        bad = [word for word in self.settings if word.partition("=")[0] not in GIVEN or "=" not in word]
        if bad:
            near = did_you_mean(bad[0].partition("=")[0], GIVEN)
            reason = f"{bad[0]!r}: a table's settings are its own, but for {', '.join(GIVEN)}{near}"
            raise ConfigError([f"{reason}; copy {self.path.name} and change the copy"])
        table = read_table(self.path, self.scale, self.settings, self.plugins, self.choices)
        with table_code(self.path):
            rehearse(table)
        return table


def tables() -> list[dict[str, str]]:
    """The tables that come with commeff: name, title, scales, what full scale costs and where it runs."""
    rows = []
    for name, path in built_in_tables().items():
        full = read_table(path)
        row = {"name": name, "title": full.title, "scales": " ".join(scales_of(execute(path)))}
        rows.append(row | {"full on": "GPU" if "GPU" in full.cost else "CPU", "full costs": full.cost})
    return rows


@contextmanager
def no_trace(store: Path, kept: bool) -> Iterator[None]:
    """Remove a store that was not there before and in which nothing was run: where that is refused, or not `kept`."""
    missing = [place for place in (store, *store.absolute().parents) if not place.exists()]
    done = False
    try:
        yield
        done = kept
    finally:
        written = {*store.glob("store.json"), *store.glob("tables/*.yaml")}  # before a run
        if missing and not done and {path for path in store.rglob("*") if not path.is_dir()} <= written:
            for file in written:
                file.unlink(missing_ok=True)
            with suppress(OSError):  # somebody else has begun to write there
                for folder in filter(Path.is_dir, (store / "tables", store / "measured", *missing)):
                    folder.rmdir()


def dry_run(arguments: Arguments) -> list[str]:
    """What would run, and what it costs, in words."""
    from commeff.experiments.grid import command as grids
    from commeff.experiments.grid.plan.cells import rates
    from commeff.experiments.reproduce.runs import unpack

    with table_code(arguments.path):
        table, plan = arguments.content, _begin(arguments)
        notes = [] if arguments.records is None else unpack(plan, arguments.records)
        seeds = ", ".join(map(str, table.seeds))
        lines = [*notes, f"{table.title}: {len(table.cases)} cases, seeds {seeds}, {table.measure}"]
        if table.measure != TRAINING:
            costs = [f"{len(table.cases) * len(table.seeds)} measurements at most"]
        else:
            stages = plan.stages()
            for stage in stages:
                grids.check(stage.request)
            cells = [grids.prepare(stage.request)[1] for stage in stages]
            every = [cell for stage in cells for cell in stage]
            costs = [grids.cost(stage, rates(every), arguments.limits.jobs) for stage in cells]
            if table.tune is not None:
                costs = [f"to choose {table.tune.over}: {costs[0]}", f"with the chosen values: {costs[1]}"]
        return [*lines, *costs, *([f"stated for this scale: {table.cost}"] if table.cost else [])]


def _begin(arguments: Arguments) -> TableRun:
    """The runs of the table, with torch; refuses a store of another version before anything runs."""
    table = arguments.content
    from commeff.experiments.reproduce.runs import TableRun

    check_version(arguments.place)
    return TableRun(table, arguments.place, arguments.limits)


def reproduce(arguments: Arguments) -> Reproduced:
    """Run what is not finished, judge, and write the page."""
    with table_code(arguments.path):
        return _reproduced(arguments)


def _reproduced(arguments: Arguments) -> Reproduced:
    table = arguments.content
    _check_device(table)
    plan = _begin(arguments)
    if table.measure == TRAINING:
        from commeff.experiments.reproduce.runs import train

        done = train(plan, arguments.records)
    else:
        from commeff.experiments.reproduce.measures import measured

        done = Reproduced(results=measured(plan))
    results = done.results
    if results is None:
        return done

    from commeff.experiments.reproduce.page import headline, replaced, write

    claims, compared = judge(results), compare(results)
    others = replaced(arguments.folder / "report.md", table.title, arguments.command)
    page = write(results, claims, compared, arguments.command, arguments.folder)
    numbers = (
        f"{one.verdict}: {one.printed.variant}{_at(one.where)}: theirs {one.published:.6g}, ours {shown(one.measured)}"
        for one in compared
    )
    judged = (one_line(f"{of.verdict.state}: {of.text}{_at(of.verdict.place)}: {of.verdict.reason}") for of in claims)
    words = headline(table.scale, claims, compared, bool(results.missing))
    outside = any(one.verdict.state == FAILS for one in claims) or any(one.verdict == OFF for one in compared)
    lines = [*done.lines, *judged, *numbers, *results.remarks, *others, words]
    return replace(done, page=page, lines=lines, exit_code=done.exit_code or (OUTSIDE if outside else 0))


def _check_device(table: PublishedTable) -> None:
    """Refuse GPUs where there are none, which every run would otherwise say by itself."""
    from commeff.experiments.run.system import visible_gpus

    if any(case.settings.get("device") == "cuda" for case in table.cases) and not visible_gpus(os.environ):
        raise ConfigError(["device=cuda: there is no NVIDIA GPU here; go where one is, or leave it out"])


def _at(where: Mapping[str, str]) -> str:
    return f" at {listing(where, ', ')}" if where else ""
