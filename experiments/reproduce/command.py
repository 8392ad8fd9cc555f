"""`commeff reproduce`: run or measure what is missing, judge, and write the page."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.reproduce.faults import own_code
from commeff.experiments.reproduce.statements import SCALES
from commeff.experiments.reproduce.table import PublishedTable, built_in_tables, find_table, read_table
from commeff.experiments.run import archive
from commeff.experiments.run.naming import IRRELEVANT
from commeff.files import unlinked
from commeff.require import did_you_mean

if TYPE_CHECKING:
    from commeff.experiments.reproduce.observing import TableRun

GIVEN = (*IRRELEVANT, "device")  # settings that the command may give
OUTSIDE = 3  # exit code: a claim fails, or a number is off


@dataclass(frozen=True)
class PeerComparison:
    """Ours beside other libraries: it has no table, and compares, judges and writes by itself.

    Attributes
    ----------
    title, cost : for `--list`.
    run : makes the page in a folder; gives its path, a line for each comparison, and the exit code.
    """

    title: str
    cost: str
    run: Callable[[Path], tuple[Path, list[str], int]]


def _peers(out: Path) -> tuple[Path, list[str], int]:
    from commeff.experiments.studies.peers import report

    return report.reproduce(out)


COMPARISONS = {
    "peers": PeerComparison(
        "Methods of ours beside those of torch, torchft, Flower and Bluefog, where these are installed",
        "half a minute, on 4 processes",
        _peers,
    ),
}


@dataclass(frozen=True)
class Wanted:
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

    @property
    def path(self) -> Path:
        """Of the table file."""
        return find_table(self.table)

    @property
    def place(self) -> Path:
        """The store: all scales of a table share one."""
        return self.store or Path("runs") / "reproduce" / (self.table if self.is_comparison else self.path.stem)

    @property
    def is_comparison(self) -> bool:
        """Whether it is one of COMPARISONS."""
        return self.table in COMPARISONS

    @property
    def folder(self) -> Path:
        """Of the page."""
        return self.out or unlinked(unlinked(self.place / "pages") / self.scale)

    @property
    def command(self) -> str:
        """What makes the page again. Where data lie, and a file of finished runs, are everybody's own: left out."""
        device = [word for word in self.settings if word.startswith("device=")]
        return shlex.join(["commeff", "reproduce", self.table, *device, "--scale", self.scale])

    def check(self) -> None:
        """Refuse what cannot be run, before anything is."""
        if not self.is_comparison:
            self.read()
        elif self.settings or self.scale != "full":
            given = self.settings[0] if self.settings else f"--scale {self.scale}"
            raise ValueError(f"{self.table} has no settings and one scale, full, got {given}; leave it out")
        if self.records is not None:
            archive.check(self.records)
            if self.is_comparison or self.read().measure != "training":
                raise ConfigError([f"{self.table} trains nothing that --records could keep; leave it out"])

    def read(self) -> PublishedTable:
        """The table; refuses settings that would change results. A comparison has none."""
        bad = [word for word in self.settings if word.partition("=")[0] not in GIVEN or "=" not in word]
        if bad:
            near = did_you_mean(bad[0].partition("=")[0], GIVEN)
            own = f"{bad[0]!r}: a table's settings are its own, but for {', '.join(GIVEN)}{near}"
            raise ConfigError([f"{own}; copy {self.path.name} and change the copy"])
        from commeff.experiments.reproduce.judging import rehearse

        table = read_table(self.path, self.scale, self.settings)
        with own_code(self.path):
            rehearse(table)
        return table


@dataclass(frozen=True)
class Reproduced:
    """What came out: the page, a line for each verdict, the exit code, and what else went wrong."""

    page: Path | None
    lines: Sequence[str]
    exit_code: int
    faults: Sequence[str] = ()


def tables() -> list[dict[str, str]]:
    """The tables that come with commeff: name, title, scales, what full scale costs and where it runs."""
    rows = []
    for name, path in built_in_tables().items():
        full = read_table(path)
        scales = [scale for scale in SCALES if scale != "reduced" or _has_reduced(path)]
        device = "GPU" if "GPU" in full.cost else "CPU"
        row = {"name": name, "title": full.title, "scales": " ".join(scales), "full on": device}
        rows.append(row | {"full costs": full.cost})
    for name, each in COMPARISONS.items():
        rows.append({"name": name, "title": each.title, "scales": "full", "full on": "CPU", "full costs": each.cost})
    return rows


def _has_reduced(path: Path) -> bool:
    try:
        read_table(path, "reduced")
    except ConfigError:
        return False
    return True


def dry_run(wanted: Wanted) -> list[str]:
    """What would run, and what it costs, in words."""
    if wanted.is_comparison:
        return [f"{COMPARISONS[wanted.table].title}: {COMPARISONS[wanted.table].cost}"]
    with own_code(wanted.path):
        return _planned(wanted)


def _planned(wanted: Wanted) -> list[str]:
    from commeff.experiments.grid import command as grids
    from commeff.experiments.reproduce import kept
    from commeff.experiments.reproduce.observing import TableRun, unmeasured

    table = wanted.read()
    plan = TableRun(table, wanted.place, wanted.limits)
    _check(plan)
    notes = [] if wanted.records is None else kept.take(plan, wanted.records)
    stated = [f"stated for this scale: {table.cost}"] if table.cost else []
    seeds = ", ".join(map(str, table.seeds))
    lines = [*notes, f"{table.title}: {len(table.cases)} cases, seeds {seeds}, {table.measure}"]
    if table.measure != "training":
        return [*lines, f"{unmeasured(plan)} measurements at most", *stated]
    from commeff.experiments.reproduce.runs import stages

    every = stages(plan)
    for stage in every:
        grids.check(stage.request)
    cells = [grids.prepare(stage.request)[1] for stage in every]
    known = [cell for stage in cells for cell in stage]
    costs = [grids.cost(own, known, wanted.limits.jobs) for own in cells]
    if table.tune is not None and len(costs) > 1:
        costs = [f"to choose {table.tune.over}: {costs[0]}", f"with the chosen values: {costs[1]}"]
    return [*lines, *costs, *stated]


def reproduce(wanted: Wanted) -> Reproduced:
    """Run what is not finished, judge, and write the page."""
    if wanted.is_comparison:
        return Reproduced(*COMPARISONS[wanted.table].run(wanted.folder))
    with own_code(wanted.path):
        return _reproduced(wanted)


def _reproduced(wanted: Wanted) -> Reproduced:
    table = wanted.read()
    _check_device(table)
    from commeff.experiments.reproduce import kept, runs
    from commeff.experiments.reproduce.observing import TableRun, measured

    plan = TableRun(table, wanted.place, wanted.limits)
    _check(plan)
    if table.measure == "training":
        trained = runs.train(plan) if wanted.records is None else kept.train(plan, wanted.records)
    else:
        trained = runs.Trained(*measured(plan))
    if trained.results is None:
        return Reproduced(None, trained.lines, trained.exit_code, trained.faults)
    results, machines = trained.results, trained.machines

    from commeff.experiments.reproduce.judging import judge
    from commeff.experiments.reproduce.numbers import OFF, compare
    from commeff.experiments.reproduce.page import headline, write
    from commeff.experiments.reproduce.traces import replaced
    from commeff.experiments.reproduce.verdicts import FAILS, shown

    verdicts, compared = judge(results), compare(results)
    others = replaced(wanted.folder / "report.md", table.title, wanted.command)
    page = write(results, verdicts, compared, machines, wanted.command, wanted.folder)
    lines = [*trained.lines]
    lines += [f"{one.verdict}: {one.claim.text}{_at(one.where)}: {one.reason}" for one in verdicts]
    lines += [
        f"{one.verdict}: {one.printed.variant}{_at(one.where)}: theirs {one.theirs:.6g}, ours {shown(one.ours)}"
        for one in compared
    ]
    outside = any(v.verdict == FAILS for v in verdicts) or any(c.verdict == OFF for c in compared)
    lines += [
        *results.warnings,
        *results.missing,
        *others,
        headline(table.scale, verdicts, compared, bool(results.missing)),
    ]
    return Reproduced(page, lines, trained.exit_code or (OUTSIDE if outside else 0), trained.faults)


def _check_device(table: PublishedTable) -> None:
    """Refuse GPUs where there are none, which every run would otherwise say by itself."""
    from commeff.experiments.grid.local.gpus import visible_gpus

    if any(case.settings.get("device") == "cuda" for case in table.cases) and not visible_gpus(os.environ):
        raise ConfigError(["device=cuda: there is no NVIDIA GPU here; go where one is, or leave it out"])


def _check(plan: TableRun) -> None:
    """Refuse what can be seen of the store before anything runs, with torch."""
    from commeff.experiments.grid.plan.estimate import store_faults

    if faults := store_faults(plan.store):
        raise ConfigError(faults)


def _at(where: object) -> str:
    words = ", ".join(f"{k}={v}" for k, v in where.items()) if isinstance(where, dict) else ""
    return f" at {words}" if words else ""
