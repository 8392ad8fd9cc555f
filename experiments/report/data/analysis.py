"""All that a report says, computed once: variants, their final numbers, differences, the way to the target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from commeff.experiments.config.registry import UnknownPart, known, targets_in
from commeff.experiments.report.data.grids import StoredGrid, planned_runs
from commeff.experiments.report.data.names import quoted
from commeff.experiments.report.data.records import UNFINISHED, Record
from commeff.experiments.report.data.rows import (
    DENSE,
    FINALS,
    LOSSES,
    TableRow,
    Target,
    half_dense,
    leader,
    prominent,
    table_row,
)
from commeff.experiments.report.data.statistics import higher_is_better
from commeff.experiments.report.data.variants import (
    RecordedRun,
    Variant,
    by_logarithm,
    chooser,
    count_states,
    edge_warnings,
    group,
    open_choice,
)
from commeff.require import did_you_mean


@dataclass(frozen=True, eq=False)
class Analysis:
    """A grid and what became of it."""

    store: Path
    grid: StoredGrid
    rows: tuple[TableRow, ...]
    metric: str
    baselines: tuple[Variant, ...]
    champions: Mapping[str, Variant]  # by task, the best mean among the variants that may be named
    targets: Mapping[str, Target]  # by task
    prominent: tuple[int, ...]  # kinds of the variants that figures name, the baseline first
    records: tuple[Record, ...]  # the store's runs, in the grid or not
    part: str = ""  # the task, where this is what an analysis of several says of one
    half: bool = True  # whether 16-bit dense psgd is counted

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The variants of the rows."""
        return tuple(row.variant for row in self.rows)

    @property
    def target(self) -> Target | None:
        """The target of the first task, the only one of a part."""
        return next(iter(self.targets.values()), None)

    @cached_property
    def half_dense(self) -> dict[str, float | None]:
        """What dense psgd would send with 16-bit numbers, by the columns of the main table."""
        return half_dense(self.rows) if self.half else {}

    @cached_property
    def parts(self) -> tuple[Analysis, ...]:
        """An analysis of each task; this one where there is one task."""
        tasks = list(dict.fromkeys(variant.task for variant in self.variants))
        return tuple(self._part(task) for task in tasks) if len(tasks) > 1 else (self,)

    def _part(self, task: str) -> Analysis:
        return replace(
            self,
            rows=tuple(row for row in self.rows if row.variant.task == task),
            baselines=tuple(variant for variant in self.baselines if variant.task == task),
            champions={name: best for name, best in self.champions.items() if name == task},
            targets={name: target for name, target in self.targets.items() if name == task},
            part=task,
        )

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """All runs of the grid, in its order."""
        return tuple(run for variant in self.variants for trial in variant.trials for run in trial.runs)

    @property
    def states(self) -> dict[str, int]:
        """The number of runs in each state."""
        return count_states(self.runs)

    @property
    def unfinished(self) -> bool:
        """Whether some runs are still to come."""
        return any(state in UNFINISHED for state in self.states)

    @property
    def by(self) -> str:
        """What tuned values are chosen by."""
        return chooser(self.grid, self.metric)

    @property
    def faults(self) -> list[str]:
        """Lines on files that could not be read."""
        return [*self.grid.faults, *(fault for record in self.records for fault in record.faults)]

    @property
    def undrawn(self) -> list[str]:
        """A line for each run of which something is left out."""
        return [record.undrawn for record in self.records if record.undrawn]

    @property
    def unknown(self) -> list[str]:
        """A line for each name in the configurations that this command does not know, and so builds nothing of; but for
        parts that were objects, which have none.
        """
        targets = (
            (record.id, target)
            for record in self.records
            for part in record.config.values()
            if not (isinstance(part, Mapping) and "given" in part)
            for target in targets_in(part)
        )
        first = {str(target): (run, target) for run, target in reversed([*targets])}
        return [f"{run}: {UnknownPart(target)}" for run, target in first.values() if not known(target)]

    @property
    def warnings(self) -> list[str]:
        """What a reader should know about the tuned keys."""
        edges = [warning for variant in self.variants for warning in edge_warnings(variant, self.grid, self.by)]
        goal = self.target.metric if self.target else ""
        seen = dict.fromkeys(name for run in self.runs for name in run.record.curve)
        text = []
        if goal and seen and goal not in seen:
            text = [f"the target counts to {goal}, which no run measures{did_you_mean(goal, seen)}"]
        reached = [(run, run.record.reached(*target)) for target in self.grid.target.items() for run in self.runs]
        late = [float(first["step"]) > run.record.curve["step"].min() for run, first in reached if first is not None]
        if late and not any(late):
            text.append("the first evaluation of each run is at the target: choose another, or a lower evaluate_every=")
        return text + edges + [warning for variant in self.variants for warning in open_choice(variant, self.grid)]

    def measured(self, metric: str) -> bool:
        """Does any run have the metric on its way?"""
        return any(metric in run.record.curve for run in self.runs)


def analyse(
    store: Path,
    grid: str | None = None,
    metric: str | None = None,
    target: float | None = None,
    baseline: Mapping[str, str] | None = None,
    half: bool | None = None,
) -> Analysis:
    """Read a store and compute everything; see `commeff.experiments.report.write.writing.write_report`."""
    plan, by_id = planned_runs(store, grid)
    if not plan.cells:
        raise ValueError(f"{store} holds no runs; `commeff train --store {store}` makes one")
    chosen = _metric(plan, metric, list(by_id.values()))
    variants = by_logarithm(group(plan, by_id, chosen), {chosen, *LOSSES})
    bases = _baselines(variants, baseline if baseline is not None else plan.baseline)
    champions, goals = {}, {}
    for task in dict.fromkeys(variant.task for variant in variants):
        if top := leader([variant for variant in variants if variant.task == task], chosen):
            champions[task] = top
        reference = next((base for base in bases if base.task == task), top)
        if goal := _target(plan, chosen, target, reference):
            goals[task] = goal
    rows = tuple(table_row(v, chosen, bases, champions.get(v.task), goals.get(v.task)) for v in variants)
    named, counted = prominent(variants, bases, chosen), plan.half if half is None else half
    return Analysis(store, plan, rows, chosen, bases, champions, goals, named, tuple(by_id.values()), half=counted)


def _metric(plan: StoredGrid, chosen: str | None, records: list[Record]) -> str:
    numbers = (name for r in records for name, v in r.summary.items() if v is None or isinstance(v, (int, float)))
    names = dict.fromkeys([*(name for record in records for name in record.curve.columns), *numbers])
    if chosen is not None:
        if names and chosen not in names:
            choices = ", ".join(name for name in FINALS if name in names)
            near = did_you_mean(chosen, names)
            raise ValueError(f"--metric must be one of {choices}, got {chosen!r}: no run has measured it{near}")
        return chosen
    asked, usual = (*([plan.by] if plan.by else []), *plan.target), ("val_accuracy", "val_loss", "train_loss")
    measured = [name for name in usual if any(_measures(record, name) for record in records)]
    pairs = ((asked, names), (measured, names), (usual, names))
    return next((name for wanted, known in pairs for name in wanted if name in known), plan.by or "val_accuracy")


def _measures(record: Record, name: str) -> bool:
    final = record.summary.get(name)
    return (name in record.curve and bool(record.curve[name].notna().any())) or (
        isinstance(final, (int, float)) and final == final
    )


def _baselines(variants: tuple[Variant, ...], settings: Mapping[str, str]) -> tuple[Variant, ...]:
    """The variants with all the settings (dense psgd if there are none); of a task those without doubts, if any."""
    matching = tuple(variant for variant in variants if variant.has(settings or DENSE))
    if settings and not matching:
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        names = ", ".join(quoted(variant.name) for variant in variants)
        near = did_you_mean(words, [f"{key}={value}" for variant in variants for key, value in variant.labels.items()])
        raise ValueError(f"--baseline must be the settings of a variant, got {words}{near}; choose from {names}")
    good = {variant.task for variant in matching if not variant.chosen.doubts}
    return tuple(variant for variant in matching if variant.task not in good or not variant.chosen.doubts)


def _target(plan: StoredGrid, metric: str, level: float | None, reference: Variant | None) -> Target | None:
    """The level given, the grid's, or a little less than what the baseline (or else the best variant) reaches."""
    if level is not None:
        if not math.isfinite(level):
            raise ValueError(f"--target must be a finite number, got {level}")
        return Target(metric, level, "as given")
    for name, goal in plan.target.items():
        return Target(name, goal, "from the grid file")
    final = reference.final(metric) if reference else None
    if reference is None or final is None:
        return None
    less = f"the final mean of {quoted(reference.name)} {'less one point' if higher_is_better(metric) else 'plus 1 %'}"
    sign = -1.0 if higher_is_better(metric) else 1.0
    return Target(metric, final.mean + sign * allowance(final.mean, metric), less)


def allowance(level: float, metric: str) -> float:
    """How much worse still counts as near: a point of accuracy, 1 % of a loss.

    >>> allowance(0.95, "val_accuracy"), allowance(0.5, "val_loss")
    (0.01, 0.005)
    """
    return 0.01 if higher_is_better(metric) else 0.01 * abs(level)


def clock(analysis: Analysis) -> str:
    """Whose seconds are reported: of workers that take turns on one machine, or of processes."""
    if all(run.processes == 1 for run in analysis.runs):
        return "Seconds are measured with simulated workers on one machine: they are not a cluster's."
    return "Seconds are measured, on the processes and machines that the head of the report names."
