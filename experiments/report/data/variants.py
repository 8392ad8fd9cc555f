"""Runs grouped into variants: everything but the seed, with tuned keys at the value that validation data chose."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from commeff.experiments.grid.plan.spec import STEPS_TO_TARGET
from commeff.experiments.report.data.grids import StoredCell, StoredGrid, leaves
from commeff.experiments.report.data.records import UNFINISHED, Record
from commeff.experiments.report.data.statistics import Estimate, best, estimate, spans
from commeff.experiments.run.store import FINISHED, STATES

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A planned cell and its result."""

    cell: StoredCell
    record: Record
    goal: tuple[str, float] | None = None  # the grid's target

    @property
    def seed(self) -> int:
        """The seed of data, batches and compressors."""
        return self.cell.seed

    @property
    def processes(self) -> int:
        """The number of its processes; 1 where all its workers are simulated."""
        number = self.record.environment.get("world_size", self.record.config.get("nproc"))
        return number if isinstance(number, int) else 1

    def final(self, metric: str) -> float:
        """A number at the end, or the steps to the grid's target; NaN where there is none."""
        if metric != STEPS_TO_TARGET:
            return self.record.final(metric)
        first = self.record.reached(*self.goal) if self.goal else None
        return math.nan if first is None else float(first["step"])

    def setting(self, key: str) -> str | None:
        """The value of a key, from its labels, its settings, or its configuration."""
        return self._settings.get(key)

    @cached_property
    def _settings(self) -> dict[str, str]:
        settings = dict(setting.split("=", 1) for setting in self.cell.settings or () if "=" in setting)
        stronger = {key: value for key, value in (*settings.items(), *self.cell.labels.items()) if value}
        return leaves(self.record.config) | stronger


@dataclass(frozen=True, eq=False)
class Trial:
    """One value of every tuned key, with its runs over the seeds."""

    values: Mapping[str, str]
    runs: tuple[RecordedRun, ...]

    @property
    def complete(self) -> bool:
        """Whether all its runs are done."""
        return all(run.record.state == "done" for run in self.runs)

    @cached_property
    def doubts(self) -> str:
        """Why no headline may name it, in words, "" if one may: runs ended badly, or those done learned nothing."""
        if lost := count_states([run for run in self.runs if run.record.state not in ("done", *UNFINISHED)]):
            seeds = f"{len(self.runs)} seed{'s' * (len(self.runs) > 1)}"
            return f"{', '.join(f'{count} {state}' for state, count in lost.items())} of {seeds}"
        idle = [run.record.idle for run in self.runs if run.record.state == "done"]
        return "learned nothing: its loss is within 1 % of the initial model's" if idle and all(idle) else ""

    def finals(self, metric: str) -> dict[int, float]:
        """Seed -> the number at the end, for the runs that are done and have it."""
        finals = {run.seed: run.final(metric) for run in self.runs}
        return {seed: value for seed, value in finals.items() if math.isfinite(value)}


@dataclass(frozen=True, eq=False)
class Variant:
    """A line of the tables.

    Attributes
    ----------
    number, name : of its own.
    labels : what tells it from the others.
    chosen, trials : the values of what is tuned, and their runs.
    task : what it learns, where the grid has several tasks or settings of one; only variants of one are compared.
    family, kind : name and number of what is the same on other tasks; it has one look in all figures.
    colour : that a style gives it.
    logs : the metrics whose means and intervals are those of logarithms.
    """

    number: int
    name: str
    labels: Mapping[str, str]
    chosen: Trial
    trials: tuple[Trial, ...]
    task: str
    family: str
    kind: int
    colour: str = ""
    logs: frozenset[str] = frozenset()

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """The runs at the chosen values."""
        return self.chosen.runs

    @cached_property
    def drawn(self) -> tuple[RecordedRun, ...]:
        """The runs that its curves show: those that are done, else those that got somewhere."""
        measured = [run for run in self.runs if not run.record.curve.empty]
        return tuple(run for run in measured if run.record.state == "done") or tuple(measured)

    @property
    def diverged(self) -> bool:
        """Whether its curves show only runs that diverged."""
        return bool(self.drawn) and all(run.record.state == "diverged" for run in self.drawn)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """The evaluations of the drawn runs, with columns run and seed."""
        rows = [run.record.curve.assign(run=run.cell.run, seed=run.seed) for run in self.drawn]
        return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame()

    def has(self, settings: Mapping[str, str]) -> bool:
        """Whether some run of it, at the chosen values of what is tuned, has all these settings."""
        return any(all(run.setting(key) == value for key, value in settings.items()) for run in self.runs)

    def finals(self, metric: str) -> dict[int, float]:
        """Seed -> final number at the chosen values."""
        return self.chosen.finals(metric)

    def final(self, metric: str) -> Estimate | None:
        """Mean and interval over the seeds that are done."""
        return estimate(self.finals(metric).values(), log=metric in self.logs)


def by_logarithm(variants: Sequence[Variant], metrics: Collection[str]) -> tuple[Variant, ...]:
    """The variants, those of metrics by logarithm whose final numbers span so much on a task that axes would be."""
    logs: dict[str, frozenset[str]] = {}
    for task in dict.fromkeys(variant.task for variant in variants):
        same_task = [variant for variant in variants if variant.task == task]
        ends = {metric: [end for variant in same_task for end in variant.finals(metric).values()] for metric in metrics}
        logs[task] = frozenset(metric for metric, values in ends.items() if spans(values))
    return tuple(replace(variant, logs=logs[variant.task]) for variant in variants)


def count_states(runs: Sequence[RecordedRun]) -> dict[str, int]:
    """The number of runs in each state, in the order of `STATES`."""
    counts = Counter(run.record.state for run in runs)
    return {state: counts[state] for state in STATES if counts[state]}


def group(grid: StoredGrid, records: Mapping[str, Record], metric: str) -> tuple[Variant, ...]:
    """The variants of a grid, in its order, at the values that `chooser` chooses."""
    by = chooser(grid, metric)
    goal = next(iter(grid.target.items()), None)
    planned: dict[Labels, dict[Labels, list[RecordedRun]]] = {}
    for cell in grid.cells:
        fixed = tuple((key, value) for key, value in cell.labels.items() if key not in grid.over)
        tuned = tuple((key, cell.labels[key]) for key in grid.over if key in cell.labels)
        planned.setdefault(fixed, {}).setdefault(tuned, []).append(RecordedRun(cell, records[cell.run], goal))
    keys = task_keys([dict(fixed) for fixed in planned])
    tasks = [" ".join(_word(key, value) for key, value in fixed if key in keys) for fixed in planned]
    labels = [{key: value for key, value in fixed if key not in keys} for fixed in planned]
    families = _names(tasks, labels, [next(iter(by_values.values()))[0].cell for by_values in planned.values()])
    kinds = [*dict.fromkeys(families)]
    variants: list[Variant] = []
    for task, family, (fixed, by_values) in zip(tasks, families, planned.items(), strict=True):
        trials = tuple(Trial(dict(values), tuple(runs)) for values, runs in by_values.items())
        name, chosen = f"{family} {task}".strip(), select(trials, by)
        variants.append(Variant(len(variants), name, dict(fixed), chosen, trials, task, family, kinds.index(family)))
    return tuple(variants)


def task_keys(labels: Sequence[Mapping[str, str]]) -> list[str]:
    """The labels that say what variants learn: the task, and settings of it that each of them was run with several of.

    >>> grid = [{"method": m, "task.alpha": a} for m in ("psgd", "dsgd") for a in ("0.1", "1")]
    >>> task_keys(grid), task_keys(grid[1:]), task_keys(grid[:2])
    (['task.alpha'], [], [])
    """
    keys = ["task"] * any("task" in entry for entry in labels)
    for key in dict.fromkeys(key for entry in labels for key in entry if key.startswith("task.")):
        families: dict[Labels, set[str]] = defaultdict(set)
        parts: Counter[tuple[str | None, ...]] = Counter()
        for entry in labels:
            families[tuple((k, v) for k, v in entry.items() if k != key)].add(entry.get(key, ""))
            parts[tuple(entry.get(k) for k in (*keys, key))] += 1
        if max(parts.values()) > 1 and min(map(len, families.values())) > 1:
            keys.append(key)
    return keys


def chooser(grid: StoredGrid, metric: str) -> str:
    """What tuned values are chosen by: what the grid says, else the metric, but never what was measured on test data.

    >>> chooser(StoredGrid("", "", None, ()), "test_accuracy")
    'val_accuracy'
    """
    return (grid.by or metric).replace("test_", "val_", 1)


def select(trials: Sequence[Trial], by: str) -> Trial:
    """The trial with the best mean on validation data, the first of equals.

    Trials whose seeds are all done come before those that still miss some: a mean over the lucky seeds is no mean. So
    do those of which most seeds have the number: not all may reach a target.
    """
    done = [trial for trial in trials if trial.complete] or list(trials)
    most = max(len(trial.finals(by)) for trial in done)
    eligible = [trial for trial in done if len(trial.finals(by)) == most]
    means = [final.mean if (final := estimate(trial.finals(by).values())) else math.nan for trial in eligible]
    return eligible[best(means, by)]


def edge_warnings(variant: Variant, grid: StoredGrid, metric: str) -> list[str]:
    """Tuned numbers whose best value is the smallest or largest tried: a better one may lie outside."""
    warnings = []
    for key in grid.over:
        values = sorted({float(trial.values[key]) for trial in variant.trials if is_number(trial.values.get(key))})
        if len(values) < 2 or not is_number(variant.chosen.values.get(key)) or not variant.finals(metric):
            continue
        chosen = float(variant.chosen.values[key])
        if chosen in (values[0], values[-1]):
            side, beyond = ("smallest", "below") if chosen == values[0] else ("largest", "above")
            warnings.append(f"{variant.name}: best {key} {chosen:g} is the {side} tried; widen the sweep {beyond} it")
    return warnings


def open_choice(variant: Variant, grid: StoredGrid) -> list[str]:
    """Values of the tuned keys whose runs are not all finished, and so could not be chosen."""
    missing = [trial for trial in variant.trials if any(run.record.state not in FINISHED for run in trial.runs)]
    if not grid.over or not missing or len(variant.trials) == 1:
        return []
    values = ", ".join(" ".join(f"{key}={value}" for key, value in trial.values.items()) for trial in missing)
    return [f"{variant.name}: not all runs with {values} are finished; what is chosen may change"]


def is_number(text: str | None) -> bool:
    """Whether a label can be read as a finite number.

    >>> is_number("1e-3"), is_number("ring"), is_number(None)
    (True, False, False)
    """
    try:
        return math.isfinite(float(text or ""))
    except ValueError:
        return False


def _names(tasks: Sequence[str], labels: Sequence[Mapping[str, str]], cells: Sequence[StoredCell]) -> list[str]:
    """What to call variants by their first cells: the author's name, else the values of their labels, or the method.

    Where those coincide on one task: an author's name and the settings that differ, else all settings with their keys.

    >>> cells = [StoredCell(f"psgd-digits-{i}", i, {}, name=name) for i, name in enumerate(("Ours", "Ours", None))]
    >>> _names(["digits"] * 3, [{"topology": "ring"}, {"topology": "star"}, {}], cells)
    ['Ours topology=ring', 'Ours topology=star', 'psgd']
    >>> _names(["digits"] * 2, [{"method": "dsgd", "lr": "1"}, {"method": "dsgd", "lr": "2"}], cells[:2])
    ['Ours lr=1', 'Ours lr=2']
    >>> _names(["digits"] * 2, [{"method": "dsgd", "topology": "ring"}, {"method.period": "8"}], cells[2:] * 2)
    ['dsgd ring', 'period=8']
    """
    names = [
        cell.name or " ".join(_word(*label) for label in settings.items()) or cell.run.split("-")[0]
        for cell, settings in zip(cells, labels, strict=True)
    ]
    alike: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
    for task, name, settings in zip(tasks, names, labels, strict=True):
        alike[task, name].append(settings)
    for i, (task, settings, cell) in enumerate(zip(tasks, labels, cells, strict=True)):
        if len(same := alike[task, names[i]]) > 1:
            differing = (key for key in settings if not cell.name or any(x.get(key) != settings[key] for x in same))
            names[i] = f"{cell.name or ''} {' '.join(f'{key}={settings[key]}' for key in differing)}".strip()
    return names


def _word(key: str, value: str) -> str:
    part, _, name = key.rpartition(".")
    return f"{name}={value}" if part or is_number(value) else value
