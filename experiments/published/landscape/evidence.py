"""What the landscape's runs came to, as the three tables that are committed and shipped.

`tasks.csv` has the commit, the machine and the model of each task, `runs.csv` every run, `missing.csv` the methods that
a task has no result of, and why. The page and `commeff advise` read these tables and nothing else.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.schema import built_in, node, version
from commeff.experiments.published.landscape.spec import BASELINE, HERE, Landscape, LandscapeTask, landscape

if TYPE_CHECKING:
    from commeff.experiments.published.landscape.runs import TaskRuns, TriedRun

TABLES = HERE / "tables"
TASK_COLUMNS = ("task", "commit", "cpu", "torch", "target", "flops", "shapes")
RUN_COLUMNS = (
    "task",
    "method",
    "version",
    "stage",
    "rate",
    "seed",
    "state",
    "validation",
    "value",
    "to_target",
    "payload_bytes",
    "wire_bytes",
)
MISSING_COLUMNS = ("task", "method", "reason")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class MethodEvidence:
    """What the runs of a method on a task came to.

    Attributes
    ----------
    method, version : its name, and which of its meanings was run.
    rate : the learning rate that validation chose.
    edge : "smallest" or "largest" where the chosen rate is that of those tried, else "".
    values : by seed, what is reported.
    to_target : by seed, the steps to the target, of the runs that reach it.
    payload_bytes, wire_bytes : of a step and worker, counted.
    """

    method: str
    version: int
    rate: float
    edge: str
    values: Mapping[int, float]
    to_target: Mapping[int, int]
    payload_bytes: float
    wire_bytes: float

    @property
    def outdated(self) -> bool:
        """Whether the method's meaning has been corrected, or the method removed, since it was run."""
        return self.method not in built_in("method") or version(node("method", self.method)) != self.version


@dataclass(frozen=True)
class TaskEvidence:
    """What the runs of a task came to.

    Attributes
    ----------
    task : as landscape.yaml has it.
    commit, cpu, torch : with which the runs were made; commits of several pieces stand side by side.
    target : of what rates are chosen by.
    flops : of a worker's minibatch, forward and backward.
    shapes : of the model's tensors, by name.
    methods : by name, those with runs of all seeds that ended well.
    missing : by name, the others, and the reason.
    """

    task: LandscapeTask
    commit: str
    cpu: str
    torch: str
    target: float
    flops: float
    shapes: Mapping[str, tuple[int, ...]]
    methods: Mapping[str, MethodEvidence]
    missing: Mapping[str, str]

    @property
    def parameters(self) -> int:
        """Of the model."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def collect(tasks: Sequence[TaskRuns]) -> tuple[list[Row], list[Row], list[Row]]:
    """The rows of the three tables, from the stores of runs; a task whose psgd is not finished has none."""
    about: list[Row] = []
    runs: list[Row] = []
    missing: list[Row] = []
    for each in tasks:
        name, base = each.task.name, [run for run in each.finals(BASELINE) if run.record.state == "done"]
        if not base:
            missing += [{"task": name, "method": method, "reason": "not run yet"} for method in each.task.competitors]
            continue
        ends = [run.record.final(each.task.by) for run in base]
        target = reachable(sum(ends) / len(ends), each.task)
        commits = dict.fromkeys(
            run.record.environment.get("commit", "unknown")
            for method in each.methods
            for run in each.finals(method)
            if run.record.state == "done"
        )
        about.append({"task": name, "target": target, "commit": " ".join(commits), **_circumstances(base[0])})
        missing += [{"task": name, "method": method, "reason": why} for method, why in each.refused.items()]
        for method in each.methods:
            finals = each.finals(method)
            rows = [("rate", run) for run in each.tried(method)] + [("chosen", run) for run in finals]
            runs += [_row(each.task, method, stage, run, target) for stage, run in rows if run.record.state != "queued"]
            if reason := _lacks(each, method, finals):
                missing.append({"task": name, "method": method, "reason": reason})
    return about, runs, missing


def reachable(level: float, task: LandscapeTask) -> float:
    """The target: what psgd comes to, less the task's allowance.

    >>> field = landscape()
    >>> round(reachable(0.96, field.tasks["digits_iid"]), 3), round(reachable(2.0, field.tasks["gpt_contiguous"]), 3)
    (0.94, 2.1)
    """
    return level - task.allowance if task.by.endswith("accuracy") else level * (1 + task.allowance)


def _circumstances(run: TriedRun) -> dict[str, Any]:
    from commeff.experiments.report.data.computing import work

    found, environment = work(run.config), run.record.environment
    shapes = ";".join(f"{field.name}:{'x'.join(map(str, field.shape))}" for field in found.layout.fields)
    own = {name: environment.get(name, "unknown") for name in ("cpu", "torch")}
    return {**own, "flops": found.flops, "shapes": shapes}


def _row(task: LandscapeTask, method: str, stage: str, run: TriedRun, target: float) -> Row:
    from commeff.experiments.report.data.statistics import first_reached

    record = run.record
    first = first_reached(record.curve, task.by, target) if record.state == "done" else None
    sent = {name: record.final(name) for name in ("payload_bytes", "wire_bytes")}
    return {
        "task": task.name,
        "method": method,
        "version": version(node("method", method)),
        "stage": stage,
        "rate": run.rate,
        "seed": run.seed,
        "state": record.state,
        "validation": record.final(task.by),
        "value": record.final(task.value),
        "to_target": "" if first is None else int(first["step"]),
        **{name: "" if math.isnan(count) else round(count / task.steps) for name, count in sent.items()},
    }


def _lacks(runs: TaskRuns, method: str, finals: Sequence[TriedRun]) -> str:
    """Why a method has no result, "" if it has."""
    if not finals:
        tried = runs.tried(method)
        bad = [run for run in tried if run.record.state not in ("queued", "running", "done")]
        words = [f"{run.record.state} at {run.rate:g}: {_last(run.record.error or run.record.reason)}" for run in bad]
        return words[0] if words else f"{sum(run.record.state == 'done' for run in tried)} of {len(tried)} rates run"
    ended = [run for run in finals if run.record.state == "done"]
    if len(ended) == len(finals):
        return ""
    bad = [run for run in finals if run.record.state not in ("queued", "running", "done")]
    return f"seed {bad[0].seed} {bad[0].record.state}" if bad else f"{len(ended)} of {len(finals)} seeds run"


def _last(text: str) -> str:
    return next(iter(reversed([line.strip() for line in text.splitlines() if line.strip()])), "no reason given")


def save(tables: tuple[Iterable[Row], Iterable[Row], Iterable[Row]], folder: Path = TABLES) -> None:
    """Write the three tables."""
    folder.mkdir(parents=True, exist_ok=True)
    files = ("tasks", TASK_COLUMNS), ("runs", RUN_COLUMNS), ("missing", MISSING_COLUMNS)
    for (name, columns), rows in zip(files, tables, strict=True):
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)


def _short(value: Any) -> Any:
    return ("" if math.isnan(value) else f"{value:.6g}") if isinstance(value, float) else value


def load(folder: Path = TABLES, field: Landscape | None = None) -> dict[str, TaskEvidence]:
    """The evidence of each task that has any, by name."""
    field = field or landscape()
    about, runs, missing = (_rows(folder / f"{name}.csv") for name in ("tasks", "runs", "missing"))
    found = {}
    for row in about:
        name = row["task"]
        own = [run for run in runs if run["task"] == name]
        lost = {each["method"]: each["reason"] for each in missing if each["task"] == name}
        names = [method for method in dict.fromkeys(run["method"] for run in own) if method not in lost]
        if not names:
            continue
        found[name] = TaskEvidence(
            field.tasks[name],
            row["commit"],
            row["cpu"],
            row["torch"],
            float(row["target"]),
            float(row["flops"]),
            _shapes(row["shapes"]),
            {method: _method([run for run in own if run["method"] == method]) for method in names},
            lost,
        )
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def _shapes(text: str) -> dict[str, tuple[int, ...]]:
    """
    >>> _shapes("0.weight:64x32;0.bias:64")
    {'0.weight': (64, 32), '0.bias': (64,)}
    """
    parts = (part.rpartition(":") for part in text.split(";"))
    return {name: tuple(int(side) for side in sides.split("x")) for name, _, sides in parts}


def _method(runs: Sequence[Mapping[str, str]]) -> MethodEvidence:
    chosen = [run for run in runs if run["stage"] == "chosen"]
    rates, rate = [float(run["rate"]) for run in runs if run["stage"] == "rate"], float(chosen[0]["rate"])
    edges = {min(rates, default=rate): "smallest", max(rates, default=rate): "largest"}
    return MethodEvidence(
        chosen[0]["method"],
        int(chosen[0]["version"]),
        rate,
        edges.get(rate, "") if len(rates) > 1 else "",
        {int(run["seed"]): float(run["value"]) for run in chosen},
        {int(run["seed"]): int(run["to_target"]) for run in chosen if run["to_target"]},
        *(sum(float(run[name]) for run in chosen) / len(chosen) for name in ("payload_bytes", "wire_bytes")),
    )
