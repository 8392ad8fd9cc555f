"""All that a report says, computed once: variants, their final numbers, differences, the way to the target."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from commeff.experiments.config.registry import UnknownPart, known, targets_in
from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.report.data.grids import StoredGrid, choose
from commeff.experiments.report.data.quantities import INNER
from commeff.experiments.report.data.records import ENDED_BADLY, UNFINISHED, Record, read_record, read_store
from commeff.experiments.report.data.statistics import Estimate, best, estimate, first_reached, higher_is_better, paired
from commeff.experiments.report.data.variants import (
    RecordedRun,
    Variant,
    beats,
    chooser,
    count_states,
    edge_warnings,
    group,
    open_choice,
)
from commeff.experiments.run.store import FINISHED

FINALS = (
    "val_accuracy",
    "val_loss",
    "test_accuracy",
    "test_loss",
    "local_val_accuracy",
    "local_val_loss",
    "train_loss",
    "payload_bytes",
    "wire_bytes",
    "seconds",
    "consensus_distance",
)
INSIDE = tuple(f"{axis}_{what}" for axis in INNER for what in ("bytes", "exposed_seconds"))
WAYS = ("step", "epoch", "wire_bytes", "seconds")  # what it may take to get to the target
DENSE = {"method": "psgd"}
WIDTHS = {"float64": 64, "float32": 32}  # bits of a number that psgd sends


@dataclass(frozen=True)
class Target:
    """A level of a metric, and where it comes from."""

    metric: str
    level: float
    origin: str


@dataclass(frozen=True)
class Reached:
    """What it took to get to the target, over the seeds that did and ended well; `of` is how many ended."""

    n: int
    of: int
    costs: Mapping[str, Estimate]


@dataclass(frozen=True, eq=False)
class TableRow:
    """What the main table says of one variant."""

    variant: Variant
    finals: Mapping[str, Estimate]
    difference: Estimate | None  # from the baseline, seed by seed
    from_best: Estimate | None
    baseline: Variant | None  # of several baselines (one a setting of the data, say) the one most like it
    saving: float | None  # the baseline's bytes on the wire over ours
    reached: Reached | None


@dataclass(frozen=True)
class HalfDense:
    """What dense psgd would send with 16-bit numbers: counted, not run, so without any claim on accuracy."""

    payload_bytes: float
    wire_bytes: float
    saving: float | None


@dataclass(frozen=True, eq=False)
class Analysis:
    """A grid and what became of it."""

    store: Path
    grid: StoredGrid
    variants: tuple[Variant, ...]
    rows: tuple[TableRow, ...]
    metric: str
    baselines: tuple[Variant, ...]
    champions: Mapping[str, Variant]  # by task, the best mean among the variants that may be named
    targets: Mapping[str, Target]  # by task
    records: tuple[Record, ...]  # the store's runs, in the grid or not
    part: str = ""  # the task, where this is what an analysis of several says of one

    @property
    def target(self) -> Target | None:
        """That of the first task, the only one of a part."""
        return next(iter(self.targets.values()), None)

    @cached_property
    def half_dense(self) -> HalfDense | None:
        """What dense psgd would send with 16-bit numbers."""
        return _half_dense(self.rows)

    @cached_property
    def parts(self) -> tuple[Analysis, ...]:
        """An analysis of each task; this one where there is one task."""
        tasks = list(dict.fromkeys(variant.task for variant in self.variants))
        return tuple(self._part(task) for task in tasks) if len(tasks) > 1 else (self,)

    def _part(self, task: str) -> Analysis:
        return replace(
            self,
            variants=tuple(variant for variant in self.variants if variant.task == task),
            rows=tuple(row for row in self.rows if row.variant.task == task),
            baselines=tuple(variant for variant in self.baselines if variant.task == task),
            champions={own: best for own, best in self.champions.items() if own == task},
            targets={own: target for own, target in self.targets.items() if own == task},
            part=task,
        )

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """All runs of the grid, in its order."""
        return tuple(run for variant in self.variants for trial in variant.trials for run in trial.runs)

    @property
    def states(self) -> dict[str, int]:
        """How many runs stand how."""
        return count_states(self.runs)

    @property
    def unfinished(self) -> bool:
        """Is there something still to run?"""
        return any(state in UNFINISHED for state in self.states)

    @property
    def unlucky(self) -> list[RecordedRun]:
        """The runs that ended otherwise than done."""
        return [run for run in self.runs if run.record.state in ENDED_BADLY]

    @property
    def by(self) -> str:
        """What tuned values are chosen by."""
        return chooser(self.grid, self.metric)

    @property
    def faults(self) -> list[str]:
        """What could not be read."""
        return [fault for record in self.records for fault in record.faults]

    @property
    def unknown(self) -> list[str]:
        """A line for each name in the configurations that this command does not know, and so builds nothing of."""
        found = ((record.id, target) for record in self.records for target in targets_in(record.config))
        first = {str(target): (run, target) for run, target in reversed([*found])}
        return [f"{run}: {UnknownPart(target)}" for run, target in first.values() if not known(target)]

    @property
    def warnings(self) -> list[str]:
        """What a reader should know about the tuned keys."""
        edges = [warning for variant in self.variants for warning in edge_warnings(variant, self.grid, self.by)]
        goal = self.target.metric if self.target else ""
        seen = dict.fromkeys(name for run in self.runs for name in run.record.curve)
        lost = []
        if goal and seen and goal not in seen:
            lost = [f"the target counts to {goal}, which no run measures{did_you_mean(goal, seen)}"]
        return lost + edges + [warning for variant in self.variants for warning in open_choice(variant, self.grid)]

    def measured(self, metric: str) -> bool:
        """Does any run have the metric on its way?"""
        return any(metric in run.record.curve for run in self.runs)


def analyse(
    store: Path,
    grid: str | None = None,
    metric: str | None = None,
    target: float | None = None,
    baseline: Mapping[str, str] | None = None,
) -> Analysis:
    """Read a store and compute everything; see `commeff.experiments.report.write_report`."""
    records = read_store(store)
    plan = choose(store, grid, records)
    if not plan.cells:
        raise ValueError(f"{store} holds no runs; `commeff train --store {store}` makes one")
    by_id = {record.id: record for record in records}
    by_id |= {cell.run: read_record(store / cell.run) for cell in plan.cells if cell.run not in by_id}
    chosen = _metric(plan, metric, list(by_id.values()))
    variants = group(plan, by_id, chosen)
    bases = _baselines(variants, baseline if baseline is not None else plan.baseline)
    champions = _champions(variants, chosen)
    goals = {}
    for task in dict.fromkeys(variant.task for variant in variants):
        reference = next((v for v in (*bases, *champions.values()) if v.task == task), None)
        if goal := _target(plan, chosen, target, reference):
            goals[task] = goal
    rows = tuple(_row(v, chosen, _nearest(v, bases), champions.get(v.task), goals.get(v.task)) for v in variants)
    return Analysis(store, plan, variants, rows, chosen, bases, champions, goals, tuple(by_id.values()))


def _metric(plan: StoredGrid, chosen: str | None, records: list[Record]) -> str:
    numbers = (name for r in records for name, v in r.summary.items() if v is None or isinstance(v, (int, float)))
    names = dict.fromkeys([*(name for record in records for name in record.curve.columns), *numbers])
    if chosen is not None:
        if names and chosen not in names:
            choices = ", ".join(name for name in FINALS if name in names)
            near = did_you_mean(chosen, names)
            raise ValueError(f"--metric must be one of {choices}, got {chosen!r}: no run has measured it{near}")
        return chosen
    preferred = (*([plan.by] if plan.by else []), *plan.target, "val_accuracy", "val_loss", "train_loss")
    return next((name for name in preferred if name in names), plan.by or "val_accuracy")


def _baselines(variants: tuple[Variant, ...], settings: Mapping[str, str]) -> tuple[Variant, ...]:
    """The variants that have all the settings; dense psgd if there are none."""
    matching = tuple(variant for variant in variants if variant.has(settings or DENSE))
    if settings and not matching:
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        names = ", ".join(variant.name for variant in variants)
        near = did_you_mean(words, [f"{key}={value}" for variant in variants for key, value in variant.labels.items()])
        raise ValueError(f"--baseline must be the settings of a variant, got {words}{near}; choose from {names}")
    return matching


def _nearest(variant: Variant, bases: tuple[Variant, ...]) -> Variant | None:
    """The baseline on the same task that shares most labels with a variant, the first of equals."""
    fitting = [base for base in bases if base.task == variant.task]
    return max(fitting, key=lambda base: len(base.labels.items() & variant.labels.items()), default=None)


def nameable(variants: Iterable[Variant]) -> list[Variant]:
    """Those that may be called good: without doubts; all seeds done, if that holds for any."""
    good = [variant for variant in variants if not variant.chosen.doubts]
    return [variant for variant in good if variant.chosen.complete] or good


def _champions(variants: tuple[Variant, ...], metric: str) -> dict[str, Variant]:
    found = {}
    for task in dict.fromkeys(variant.task for variant in variants):
        eligible = nameable(variant for variant in variants if variant.task == task and variant.finals(metric))
        if eligible:
            means = [final.mean for variant in eligible if (final := variant.final(metric))]
            found[task] = eligible[best(means, metric)]
    return found


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
    less = f"the final mean of {reference.name} {'less one point' if higher_is_better(metric) else 'plus 1 %'}"
    sign = -1.0 if higher_is_better(metric) else 1.0
    return Target(metric, final.mean + sign * allowance(final.mean, metric), less)


def allowance(level: float, metric: str) -> float:
    """How much worse still counts as near: a point of accuracy, 1 % of a loss.

    >>> allowance(0.95, "val_accuracy"), allowance(0.5, "val_loss")
    (0.01, 0.005)
    """
    return 0.01 if higher_is_better(metric) else 0.01 * abs(level)


def _row(
    variant: Variant, metric: str, base: Variant | None, champion: Variant | None, goal: Target | None
) -> TableRow:
    names = dict.fromkeys((*FINALS, *INSIDE, metric))
    finals = {name: final for name in names if (final := variant.final(name)) is not None}
    theirs = base.final("wire_bytes") if base else None
    ours = finals.get("wire_bytes")
    return TableRow(
        variant,
        finals,
        _paired(variant, base, metric),
        _paired(variant, champion, metric),
        base,
        theirs.mean / ours.mean if theirs and ours and ours.mean > 0 else None,
        _reached(variant, goal) if goal else None,
    )


def _paired(variant: Variant, other: Variant | None, metric: str) -> Estimate | None:
    if other is None or other is variant or other.task != variant.task:
        return None
    return paired(variant.finals(metric), other.finals(metric))


def _reached(variant: Variant, goal: Target) -> Reached:
    ended = [run.record for run in variant.runs if run.record.state in FINISHED and not run.record.curve.empty]
    done = [record for record in ended if record.state == "done"]  # what diverges has reached nothing
    firsts = [first_reached(record.curve, goal.metric, goal.level) for record in done]
    table = pd.DataFrame([first for first in firsts if first is not None])
    costs = {way: value for way in WAYS if way in table and (value := estimate(table[way]))}
    return Reached(len(table), len(ended), costs)


def _half_dense(rows: tuple[TableRow, ...]) -> HalfDense | None:
    """Bytes of dense psgd with 16-bit numbers; None where it did not run, or ran with several settings."""
    dense = [row for row in rows if row.variant.has(DENSE) and {"payload_bytes", "wire_bytes"} <= row.finals.keys()]
    if len(dense) != 1:
        return None
    row = dense[0]
    bits = WIDTHS.get(row.variant.runs[0].setting("task.dtype") or "float32")
    if bits is None:
        return None
    payload, wire = (row.finals[name].mean * 16 / bits for name in ("payload_bytes", "wire_bytes"))
    return HalfDense(payload, wire, row.saving and row.saving * bits / 16)


def differs_from_best(row: TableRow) -> bool | None:
    """Does a row differ from the best by more than its paired interval? None where seeds are too few to say."""
    return None if row.from_best is None or row.from_best.half is None else row.from_best.tells


def leader(rows: Sequence[TableRow], name: str) -> TableRow | None:
    """The row with the best mean of a quantity, among those that may be called good."""
    finals = {row.variant: final for row in rows if (final := row.variant.final(name))}
    named, top = {*nameable(finals)}, None
    for row in rows:
        final = finals.get(row.variant)
        if final and row.variant in named and (top is None or beats(final.mean, finals[top.variant].mean, name)):
            top = row
    return top


def clock(analysis: Analysis) -> str:
    """Whose seconds are reported: of workers that take turns on one machine, or of processes."""
    if all(run.processes == 1 for run in analysis.runs):
        return "Seconds are measured with simulated workers on one machine: they are not a cluster's."
    return "Seconds are measured, on the processes and machines that the head of the report names."
