"""The runs of a table that trains: those that choose, then those that are judged. Each stage is a grid in one store, so
that what is finished is not repeated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid import command as grids
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.report.data.names import plugins
from commeff.experiments.reproduce.constants import resolved
from commeff.experiments.reproduce.results import CaseResult, Observation, Reproduced, Results
from commeff.experiments.reproduce.table import PublishedTable
from commeff.experiments.reproduce.tuning import TunedChoice, check_measured, choices_of
from commeff.experiments.run import archive
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.store import BAD, FINISHED, stamp
from commeff.files import rewrite, unlinked

if TYPE_CHECKING:
    from commeff.experiments.report.data.records import Record
    from commeff.experiments.reproduce.pricing import Pricing

FACTS = ("cpu", "cores", "gpus", "python", "torch", "commit")  # of a machine that a page names
UNWRITTEN = 2  # exit code: the file of --records could not be written


@dataclass(frozen=True)
class TableRun:
    """A table, its cases with their functions worked out, and where and until when they run."""

    table: PublishedTable
    store: Path
    limits: Limits

    @cached_property
    def cases(self) -> list[CaseResult]:
        """The cases, without runs yet."""
        cases, swept = list[CaseResult](), self.table.swept
        for case in self.table.cases:
            settings = resolved(self.table, case)
            labels = {key: settings.get(key, case.labels[key]) for key in swept if key in case.labels}
            cases.append(CaseResult(case, {}, labels, settings))
        return cases

    def config(self, case: CaseResult, seed: int) -> dict[str, Any]:
        """The configuration of a case with a seed."""
        words = [f"{key}={value}" for key, value in case.settings.items()]
        return compose([*words, f"seed={seed}"], self.table.choices)

    @cached_property
    def pricing(self) -> Pricing:
        """What adds modelled seconds and the bytes of each direction, if the table has been seen to speak of them."""
        from commeff.experiments.reproduce.pricing import Pricing

        return Pricing(self.table.cluster, self.table.metrics)

    @cached_property
    def tuning(self) -> TableStage | None:
        """The runs that only choose; None where there are none."""
        tune = self.table.tune
        if tune is None:
            return None
        cases = [replace(one, settings=resolved(self.table, one.case, tune.settings)) for one in self.cases]
        return TableStage(self, "_tuning", cases, tune.seeds)

    def reported(self, choices: Sequence[TunedChoice] = ()) -> TableStage:
        """The runs that are judged: of all cases, or of those that were chosen."""
        best = {id(choice.best.case) for choice in choices}
        cases = [one for one in self.cases if not choices or id(one.case) in best]
        return TableStage(self, "", cases, self.table.seeds)

    def stages(self) -> list[TableStage]:
        """Both stages; before all runs that tune are done, of each group of cases any one stands for the best."""
        if self.tuning is None:
            return [self.reported()]
        return [self.tuning, self.reported(choices_of(self.tuning.results()))]

    @cached_property
    def runs(self) -> list[str]:
        """The names of all runs that may be trained, whatever is chosen."""
        stages = [self.reported(), *([self.tuning] if self.tuning else [])]
        configs = (self.config(case, seed) for stage in stages for case in stage.cases for seed in stage.seeds)
        return sorted({*map(run_id, configs)})


@dataclass(frozen=True, eq=False)
class TableStage:
    """Runs of cases with seeds: a grid in the store of a table.

    Attributes
    ----------
    plan : of the table.
    suffix : of the grid's name.
    cases : what runs.
    seeds : with which each runs.
    """

    plan: TableRun
    suffix: str
    cases: Sequence[CaseResult]
    seeds: Sequence[int]

    @property
    def request(self) -> grids.Request:
        """The grid; its file is written into the store."""
        table, store = self.plan.table, self.plan.store
        title = f"{table.title}: {table.tune.over}" if table.tune and self.suffix else table.title
        entries = [{"name": one.case.name, **one.settings} for one in self.cases]
        unique = list({json.dumps(entry, sort_keys=True): entry for entry in entries}.values())
        stamp(store)
        unlinked(store / "tables").mkdir(exist_ok=True)
        file = store / "tables" / f"{table.path.stem}_{table.scale}{self.suffix}.yaml"
        content = {"title": title, "seeds": [*self.seeds], "grid": unique}
        rewrite(file, yaml.safe_dump(content, sort_keys=False, width=1000), shared=True)
        limits = self.plan.limits
        return grids.Request(file, store=store, limits=limits, plugins=table.plugins, choices=table.choices)

    def results(self) -> Results:
        """The results as the store has them."""
        from commeff.experiments.report.data.records import read_record

        results, missing = list[CaseResult](), list[str]()
        for case in self.cases:
            runs = dict[int, Observation]()
            for seed in self.seeds:
                config = self.plan.config(case, seed)
                record = read_record(self.plan.store / run_id(config))
                if record.state in FINISHED:
                    runs[seed] = self._observation(record, config)
                else:
                    missing.append(f"{case.words} seed {seed} is {record.state}")
            results.append(replace(case, runs=runs))
        return Results(self.plan.table, results, (), missing)

    def _observation(self, record: Record, config: Mapping[str, Any]) -> Observation:
        table = self.plan.table
        numbers = {name: value for name, value in record.summary.items() if type(value) in (int, float)}
        finals = numbers | {"consensus_distance": record.final("consensus_distance")}
        comparable, machine = table.is_theirs(record.config), machine_of(record.environment)
        run = Observation(finals, record.curve, record.state, comparable, machine)
        if not self.suffix:
            run = self.plan.pricing.priced(config, run)
        return run.with_metrics(table.derived)


def machine_of(environment: Mapping[str, Any]) -> dict[str, str]:
    """What a page says of where a run or a measurement was made: its machine, and its plug-ins if it has any."""
    facts = {fact: str(environment.get(fact, "unknown")) for fact in FACTS}
    return facts | ({"plugins": "; ".join(names)} if (names := plugins(environment)) else {})


def train(plan: TableRun, records: Path | None = None) -> Reproduced:
    """Run what is not finished of both stages, but for the runs that a file has, which gets all that are.

    The file is written also where time was over, and where training ends by an error or Ctrl-C; such an end is the one
    that is told.
    """
    if records is None:
        return _train(plan)
    lines, folders = unpack(plan, records), [plan.store / name for name in plan.runs]
    try:
        done = _train(plan)
    except BaseException:
        with suppress(ConfigError):
            archive.pack(records, folders)
        raise
    done = replace(done, lines=[*lines, *done.lines])
    try:
        archive.pack(records, folders)
    except ConfigError as error:
        return replace(done, faults=error.faults, exit_code=UNWRITTEN)
    return done


def unpack(plan: TableRun, records: Path) -> list[str]:
    """Put the runs of a file into the store of a table; a line if some of them are none of the table's."""
    unpacked = archive.unpack(records, plan.store)
    matching = [name for name in unpacked if name in plan.runs]
    if len(matching) == len(unpacked):
        return []
    what = f"{len(matching)} of the {len(unpacked)} runs in {records} belong to this table at scale {plan.table.scale}"
    return [f"{what}, with these settings and this data; the others stay in it"]


def _train(plan: TableRun) -> Reproduced:
    for stage in plan.stages():
        grids.check(stage.request)
    choices = list[TunedChoice]()
    if plan.tuning is not None:
        outcome = grids.run(plan.tuning.request)
        if outcome.interrupted or outcome.left:
            return _stopped(plan, outcome)
        tried = plan.tuning.results()
        if tried.missing:
            why = "nothing is chosen before all runs that tune are done; the same command tries them again"
            return Reproduced(lines=[*(f"tuning: {line}" for line in tried.missing), why], exit_code=1)
        choices = choices_of(tried)
        check_measured(choices)
    reported = plan.reported(choices)
    outcome = grids.run(reported.request)
    if outcome.interrupted or outcome.left:
        return _stopped(plan, outcome)
    return Reproduced(results=replace(reported.results(), choices=choices), exit_code=outcome.exit_code)


def _stopped(plan: TableRun, outcome: grids.Outcome) -> Reproduced:
    """The outcome before all is done: what is left of both stages."""
    if outcome.interrupted:
        return Reproduced(lines=["interrupted; the same command goes on"], exit_code=outcome.exit_code)
    failed = [f"{run} is {state}" for run, state in outcome.states.items() if state in BAD and run not in outcome.left]
    cells = [cell for stage in plan.stages() for cell in grids.prepare(stage.request, rehearsed=False)[1]]
    return Reproduced(lines=[*failed, grids.standing(cells, plan.limits.jobs)], exit_code=outcome.exit_code)
