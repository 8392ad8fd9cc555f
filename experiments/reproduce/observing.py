"""Running and measuring the cases of a table, by grids and their store: what is finished is not repeated."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from commeff.experiments.grid.command import Request
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.reproduce.cases import Case, Setting
from commeff.experiments.reproduce.constants import resolved, worked_out
from commeff.experiments.reproduce.judging import rehearse
from commeff.experiments.reproduce.pricing import Pricing
from commeff.experiments.reproduce.quantities import Observation, derived
from commeff.experiments.reproduce.results import CaseResult, Results, TunedChoice
from commeff.experiments.reproduce.table import PublishedTable
from commeff.experiments.run.reading import read_json
from commeff.experiments.run.store import FINISHED, stamp
from commeff.files import rewrite, unlinked

if TYPE_CHECKING:
    from commeff.experiments.report.data.records import Record

VERSION = 3  # of what measurements mean
ENDLESS = ("inf", "-inf", "nan")  # numbers that JSON lacks, as a measurement in the store has them
FACTS = ("cpu", "cores", "gpus", "python", "torch", "commit")  # of a machine that a page names


@dataclass(frozen=True)
class TableRun:
    """A table, its cases with their functions worked out, and where and until when they run."""

    table: PublishedTable
    store: Path
    limits: Limits

    @cached_property
    def settings(self) -> list[dict[str, str]]:
        """Of each case."""
        return self._resolved({})

    def labels(self, number: int) -> dict[str, str]:
        """The labels of a case that differ among cases, functions worked out."""
        case, settings = self.table.cases[number], self.settings[number]
        return {key: settings.get(key, case.labels[key]) for key in self.table.swept if key in case.labels}

    @cached_property
    def pricing(self) -> Pricing:
        """What adds modelled seconds and the bytes of each direction."""
        rehearse(self.table)  # which says what is spoken of
        return Pricing(self.table.cluster, self.table.metrics)

    @property
    def tuning(self) -> TableStage | None:
        """The runs that only choose; None where there are none."""
        tune = self.table.tune
        if tune is None or not tune.seeds:
            return None
        numbers = tuple(range(len(self.table.cases)))
        return TableStage(self, "_tuning", numbers, self._resolved(tune.settings), tune.seeds)

    @cached_property
    def runs(self) -> frozenset[str]:
        """The names of all runs that may be trained, whatever is chosen."""
        stages = [self.reported(), *([self.tuning] if self.tuning else [])]
        return frozenset(stage.run(n, seed) for stage in stages for n in stage.numbers for seed in stage.seeds)

    def reported(self, choices: Sequence[TunedChoice] | None = None) -> TableStage:
        """The runs that are judged: of all cases, or of those that were chosen."""
        chosen = None if choices is None else {id(choice.best.case) for choice in choices}
        numbers = [n for n, case in enumerate(self.table.cases) if chosen is None or id(case) in chosen]
        return TableStage(self, "", tuple(numbers), self.settings, self.table.seeds)

    @cached_property
    def planned(self) -> list[CaseResult]:
        """The cases without any results."""
        return [CaseResult(case, {}, self.labels(number)) for number, case in enumerate(self.table.cases)]

    def _resolved(self, changes: Mapping[str, Setting]) -> list[dict[str, str]]:
        """The settings of each case; the functions of changes know those without them."""
        return [
            resolved(self.table, case)
            | {key: worked_out(self.table, case, key, value) for key, value in changes.items()}
            for case in self.table.cases
        ]


@dataclass(frozen=True, eq=False)
class TableStage:
    """Runs of cases with seeds: a grid in the store of a table.

    Attributes
    ----------
    plan : of the table.
    suffix : of the grid's name.
    numbers : of the cases.
    settings : of every case of the table.
    seeds : with which each runs.
    """

    plan: TableRun
    suffix: str
    numbers: tuple[int, ...]
    settings: Sequence[Mapping[str, str]]
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of the grid."""
        return f"{self.plan.table.name}_{self.plan.table.scale}{self.suffix}"

    @property
    def title(self) -> str:
        """Of the grid."""
        table = self.plan.table
        return f"{table.title}: {table.tune.over}" if table.tune and self.suffix else table.title

    @property
    def request(self) -> Request:
        """The grid; its file is written into the store."""
        entries = [{"name": self.plan.table.cases[n].name, **self.settings[n]} for n in self.numbers]
        unique = list({json.dumps(entry, sort_keys=True): entry for entry in entries}.values())
        content = {"title": self.title, "seeds": list(self.seeds), "grid": unique}
        stamp(self.plan.store)
        unlinked(self.plan.store / "tables").mkdir(exist_ok=True)
        file = self.plan.store / "tables" / f"{self.name}.yaml"
        rewrite(file, yaml.safe_dump(content, sort_keys=False, width=1000), shared=True)
        return Request(file, store=self.plan.store, limits=self.plan.limits)

    def words(self, number: int, seed: int) -> list[str]:
        """The settings of a run."""
        return [*(f"{key}={value}" for key, value in self.settings[number].items()), f"seed={seed}"]

    def run(self, number: int, seed: int) -> str:
        """The name of a run."""
        from commeff.experiments.config.compose import compose
        from commeff.experiments.run.naming import run_id

        return run_id(compose(self.words(number, seed)))

    def results(self) -> StageResults:
        """As the store has them."""
        from commeff.experiments.report.data.records import read_record

        grid = read_json(self.plan.store / "grids" / f"{self.name}.json")  # none where runs came by --records
        runs = {(frozenset(cell["settings"]), cell["seed"]): cell["run"] for cell in grid.get("cells", [])}
        results, machines, missing = [], dict[str, dict[str, str]](), list[str]()
        for number in self.numbers:
            case, seen = self.plan.table.cases[number], dict[int, Observation]()
            for seed in self.seeds:
                run = runs.get((frozenset(self.words(number, seed)), seed)) or self.run(number, seed)
                record = read_record(self.plan.store / run)
                if record.state in FINISHED:
                    numbers = {name: value for name, value in record.summary.items() if _is_number(value)}
                    finals = numbers | ({"consensus_distance": record.final("consensus_distance")})
                    theirs = self.plan.table.is_theirs(record.config)
                    own = Observation(finals, record.curve, record.state, run, theirs)
                    config = partial(_where_data_are, record, self.settings[number])
                    priced = own if self.suffix else self.plan.pricing.priced(config, own)
                    seen[seed] = derived(priced, self.plan.table.derived)
                    _add(machines, record.environment)
                else:
                    missing.append(f"{words_of(case, self.plan.labels(number))} seed {seed} is {record.state}")
            results.append(CaseResult(case, seen, self.plan.labels(number)))
        return StageResults(results, missing, list(machines.values()))


@dataclass(frozen=True)
class StageResults:
    """What the runs of a stage came to: results of its cases, what is not finished, and on which machines they ran."""

    cases: list[CaseResult]
    missing: list[str]
    machines: list[dict[str, str]]


def measured(plan: TableRun) -> tuple[Results, list[dict[str, str]]]:
    """The results of a table that trains nothing; each is kept in the store."""
    from commeff.experiments.config.compose import compose
    from commeff.experiments.reproduce.measures import KINDS
    from commeff.experiments.run.system import sys_info

    stamp(plan.store)
    unlinked(plan.store / "measured").mkdir(exist_ok=True)
    machine = sys_info()
    results, machines = [], dict[str, dict[str, str]]()
    for number, (case, settings) in enumerate(zip(plan.table.cases, plan.settings, strict=True)):
        seen = {}
        for seed in plan.table.seeds:
            config = compose([*(f"{key}={value}" for key, value in settings.items()), f"seed={seed}"])
            if plan.table.measure == "modelled":  # in no time, so that it need not be kept
                seen[seed] = derived(Observation(plan.pricing.planned(config)), plan.table.derived)
                _add(machines, machine)
                continue
            key = json.dumps([VERSION, plan.table.measure, config], sort_keys=True)
            file = plan.store / "measured" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
            content = _kept(file)
            if content is None:
                numbers = KINDS[plan.table.measure](config)
                content = {"numbers": {k: v if math.isfinite(v) else str(float(v)) for k, v in numbers.items()}}
                content["machine"] = {fact: machine[fact] for fact in FACTS}
                rewrite(file, json.dumps(content, indent=1) + "\n", shared=True)
            _add(machines, content["machine"])
            numbers = {name: float(value) for name, value in content["numbers"].items()}
            seen[seed] = derived(Observation(numbers), plan.table.derived)
        results.append(CaseResult(case, seen, plan.labels(number)))
    return Results(plan.table, results), list(machines.values())


def unmeasured(plan: TableRun) -> int:
    """How many measurements there will be at most."""
    return len(plan.table.cases) * len(plan.table.seeds)


def words_of(case: Case, labels: Mapping[str, str]) -> str:
    """A case in words."""
    return " ".join([case.name, *(f"{key}={value}" for key, value in labels.items())])


def _where_data_are(record: Record, settings: Mapping[str, str]) -> Mapping[str, Any]:
    """The configuration of a run, which may have been made elsewhere, with the data folder that is asked for here."""
    folder = settings.get("task.data_dir", settings.get("data_dir"))
    if folder is None or "data_dir" not in record.config["task"]:
        return dict(record.parts)
    return {**record.parts, "task": {**record.parts["task"], "data_dir": folder}}


def _kept(file: Path) -> dict[str, Any] | None:
    """A measurement in the store, None where there is none, or a damaged one."""
    content = read_json(file)
    numbers, machine = content.get("numbers"), content.get("machine")
    if not (isinstance(numbers, dict) and numbers and isinstance(machine, dict) and {*FACTS} <= machine.keys()):
        return None
    return content if all(_is_number(value) or value in ENDLESS for value in numbers.values()) else None


def _add(machines: dict[str, dict[str, str]], environment: Mapping[str, Any]) -> None:
    facts = {fact: str(environment.get(fact, "unknown")) for fact in FACTS}
    machines.setdefault(json.dumps(facts), facts)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def commits(machines: Sequence[Mapping[str, str]]) -> str:
    """The commits of the runs.

    >>> commits([{"commit": "b"}, {"commit": "a"}, {"commit": "b"}])
    'a, b'
    """
    return ", ".join(sorted({machine["commit"] for machine in machines}))
