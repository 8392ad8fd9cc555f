"""The measurements of a table that trains nothing, each kept in its store."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commeff.experiments.reproduce.measures import KINDS
from commeff.experiments.reproduce.results import CaseResult, Observation, Results
from commeff.experiments.reproduce.runs import FACTS, Machines, TableRun, is_number
from commeff.experiments.run.reading import read_json
from commeff.experiments.run.store import stamp
from commeff.files import rewrite, unlinked

VERSION = 3  # of what measurements mean
ENDLESS = ("inf", "-inf", "nan")  # numbers that JSON lacks, as a measurement in the store has them


def measured(plan: TableRun) -> Results:
    """The results of a table: of every case with every seed, measured or as the store has them."""
    from commeff.experiments.config.compose import compose
    from commeff.experiments.run.system import sys_info

    stamp(plan.store)
    unlinked(plan.store / "measured").mkdir(exist_ok=True)
    results, machines, machine = list[CaseResult](), Machines(), sys_info()
    for number, (case, settings) in enumerate(zip(plan.table.cases, plan.settings, strict=True)):
        seen = {}
        for seed in plan.table.seeds:
            config = compose([*(f"{key}={value}" for key, value in settings.items()), f"seed={seed}"])
            if plan.table.measure == "modelled":  # in no time, so that it need not be kept
                numbers, where = plan.pricing.planned(config), machine
            else:
                numbers, where = _kept(plan, config, machine)
            machines.add(where)
            seen[seed] = Observation(numbers).with_metrics(plan.table.derived)
        results.append(CaseResult(case, seen, plan.labels(number)))
    return Results(plan.table, results, machines=machines.found)


def _kept(plan: TableRun, config: Mapping[str, Any], machine: Mapping[str, str]) -> tuple[dict[str, float], Any]:
    """The numbers of a case, and the machine that they are from."""
    key = json.dumps([VERSION, plan.table.measure, config], sort_keys=True)
    file = plan.store / "measured" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    content = _read(file)
    if content is None:
        numbers = KINDS[plan.table.measure](config)
        content = {"numbers": {k: v if math.isfinite(v) else str(float(v)) for k, v in numbers.items()}}
        content["machine"] = {fact: machine[fact] for fact in FACTS}
        rewrite(file, json.dumps(content, indent=1) + "\n", shared=True)
    return {name: float(value) for name, value in content["numbers"].items()}, content["machine"]


def _read(file: Path) -> dict[str, Any] | None:
    """A measurement in the store, None where there is none, or a damaged one."""
    content = read_json(file)
    numbers, machine = content.get("numbers"), content.get("machine")
    if not (isinstance(numbers, dict) and numbers and isinstance(machine, dict) and {*FACTS} <= machine.keys()):
        return None
    return content if all(is_number(value) or value in ENDLESS for value in numbers.values()) else None
