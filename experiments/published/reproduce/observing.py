"""Running and measuring the cases of a table, by a grid and its store: what is finished is not repeated."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.command import Request
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.published.reproduce.constants import resolved
from commeff.experiments.published.reproduce.language import LanguageError
from commeff.experiments.published.reproduce.pricing import Pricing
from commeff.experiments.published.reproduce.quantities import Observation
from commeff.experiments.published.reproduce.results import CaseResult, Results, choose
from commeff.experiments.published.reproduce.table import Case, PublishedTable
from commeff.experiments.run.store import FINISHED, replace, stamp

VERSION = 2  # of what measurements mean
FACTS = ("cpu", "cores", "gpus", "python", "torch", "commit")  # of a machine that a page names


@dataclass(frozen=True)
class TableRun:
    """A table, its cases with their formulas worked out, and where they run."""

    table: PublishedTable
    store: Path
    jobs: int

    @cached_property
    def settings(self) -> list[dict[str, str]]:
        """Of each case."""
        faults: dict[str, None] = {}
        found = []
        for case in self.table.cases:
            try:
                found.append(resolved(self.table, case))
            except LanguageError as error:
                faults[str(error)] = None
        if faults:
            raise ConfigError(list(faults))
        return found

    def labels(self, number: int) -> dict[str, str]:
        """The labels of a case that differ among cases, formulas worked out."""
        case, settings = self.table.cases[number], self.settings[number]
        return {key: settings.get(key, case.labels[key]) for key in self.table.swept if key in case.labels}

    @cached_property
    def pricing(self) -> Pricing:
        """What adds modelled seconds and the bytes of each direction."""
        return Pricing(self.table.cluster, self.table.metrics)

    @property
    def request(self) -> Request:
        """The grid of all cases; its file is written into the store."""
        name = f"{self.table.name}_{self.table.scale}"
        entries = [{"name": c.name, **s} for c, s in zip(self.table.cases, self.settings, strict=True)]
        unique = list({json.dumps(entry, sort_keys=True): entry for entry in entries}.values())
        content = {"title": self.table.title, "seeds": list(self.table.seeds), "grid": unique}
        stamp(self.store)
        (self.store / "tables").mkdir(exist_ok=True)
        file = self.store / "tables" / f"{name}.yaml"
        replace(file, yaml.safe_dump(content, sort_keys=False, width=1000), shared=True)
        return Request(file, store=self.store, limits=Limits(self.jobs))


def trained(plan: TableRun) -> tuple[Results, list[dict[str, str]]]:
    """The results of a training table as its store has them, and the machines that they are from."""
    from commeff.experiments.config.compose import compose
    from commeff.experiments.report.data.records import read_record
    from commeff.experiments.run.store import run_id

    grid = json.loads((plan.store / "grids" / f"{plan.table.name}_{plan.table.scale}.json").read_text())
    runs = {(frozenset(cell["settings"]), cell["seed"]): cell["run"] for cell in grid["cells"]}
    results, machines, missing = [], dict[str, dict[str, str]](), list[str]()
    for number, (case, settings) in enumerate(zip(plan.table.cases, plan.settings, strict=True)):
        seen = {}
        for seed in plan.table.seeds:
            words = [*(f"{key}={value}" for key, value in settings.items()), f"seed={seed}"]
            run = runs.get((frozenset(words), seed)) or run_id(compose(words))
            record = read_record(plan.store / run)
            if record.state in FINISHED:
                numbers = {name: value for name, value in record.summary.items() if _is_number(value)}
                finals = numbers | ({"consensus_distance": record.final("consensus_distance")})
                own = Observation(finals, record.curve, record.state, run, plan.table.is_theirs(record.config))
                seen[seed] = plan.pricing.priced(record.config, own)
                _add(machines, record.environment)
            else:
                missing.append(f"{words_of(case, plan.labels(number))} seed {seed} is {record.state}")
        results.append(CaseResult(case, seen, plan.labels(number)))
    return choose(plan.table, results, missing), list(machines.values())


def measured(plan: TableRun) -> tuple[Results, list[dict[str, str]]]:
    """The results of a table that trains nothing; each is kept in the store."""
    from commeff.experiments.config.compose import compose
    from commeff.experiments.published.reproduce.measures import KINDS
    from commeff.experiments.run.system import sys_info

    stamp(plan.store)
    (plan.store / "measured").mkdir(exist_ok=True)
    machine = sys_info()
    results, machines = [], dict[str, dict[str, str]]()
    for number, (case, settings) in enumerate(zip(plan.table.cases, plan.settings, strict=True)):
        seen = {}
        for seed in plan.table.seeds:
            config = compose([*(f"{key}={value}" for key, value in settings.items()), f"seed={seed}"])
            if plan.table.measure == "modelled":  # in no time, so that it need not be kept
                seen[seed] = Observation(plan.pricing.planned(config))
                _add(machines, machine)
                continue
            key = json.dumps([VERSION, plan.table.measure, config], sort_keys=True)
            file = plan.store / "measured" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
            content = _kept(file)
            if content is None:
                numbers = KINDS[plan.table.measure](config)
                content = {"numbers": {k: v if abs(v) < float("inf") else "inf" for k, v in numbers.items()}}
                content["machine"] = {fact: machine[fact] for fact in FACTS}
                replace(file, json.dumps(content, indent=1) + "\n", shared=True)
            _add(machines, content["machine"])
            seen[seed] = Observation({name: float(value) for name, value in content["numbers"].items()})
        results.append(CaseResult(case, seen, plan.labels(number)))
    return choose(plan.table, results), list(machines.values())


def unmeasured(plan: TableRun) -> int:
    """How many measurements there will be at most."""
    return len(plan.table.cases) * len(plan.table.seeds)


def words_of(case: Case, labels: Mapping[str, str]) -> str:
    """A case in words."""
    return " ".join([case.name, *(f"{key}={value}" for key, value in labels.items())])


def _kept(file: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and {"numbers", "machine"} <= content.keys() else None


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
