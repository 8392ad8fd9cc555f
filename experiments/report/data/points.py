"""From runs to the points of a figure: a formula against another, a line for each value of some keys, seeds averaged.

Where a metric stands at the horizontal axis by itself, lines are curves, a point an evaluation; else a point is what
runs with the same settings have at their end. What varies and is neither at an axis nor tells lines apart is refused.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from commeff.experiments.catalogue.constants import NAMES, PARTS, NoConstantError, constant
from commeff.experiments.report.data.formula import Formula
from commeff.experiments.report.data.grids import StoredGrid, leaves, planned_runs
from commeff.experiments.report.data.records import UNFINISHED, Record
from commeff.experiments.report.data.statistics import interval, spans
from commeff.experiments.report.data.variants import RecordedRun, group, is_number
from commeff.require import did_you_mean

COLUMNS = ["x", "y", "low", "high", "n"]
NAME = "name"  # what a grid's author calls a run


@dataclass(frozen=True, eq=False)
class FigureRun:
    """A run, or one that is only planned, and what its grid's author calls it."""

    record: Record
    name: str = ""

    @cached_property
    def settings(self) -> dict[str, str]:
        """All keys that decide the result, seeds too."""
        return leaves(self.record.config) | ({NAME: self.name} if self.name else {})

    @property
    def but_seeds(self) -> dict[str, str]:
        """All keys that decide the result but seeds."""
        return {key: value for key, value in self.settings.items() if key.split(".")[-1] != "seed"}

    @property
    def known(self) -> bool:
        """Whether the run has anything to read."""
        return bool(self.record.config) or not self.record.curve.empty

    def value(self, name: str, along: bool) -> Any:
        """What a name stands for: a number or a word of the settings, a curve, its end, or a constant of a part."""
        if (setting := self.settings.get(name)) is not None:
            return np.float64(setting) if is_number(setting) else setting
        if along and name in self.record.curve:
            return self.record.curve[name].to_numpy()
        part, _, constant_name = name.partition(".")
        if part not in PARTS or not constant_name:
            return self.last(name)
        try:
            return constant(self.record.parts, part, constant_name)
        except NoConstantError:
            return math.nan

    def last(self, metric: str) -> float:
        """A metric at the end, NaN unless the run is done."""
        value, curve = self.record.final(metric), self.record.curve
        if math.isnan(value) and self.record.state == "done" and metric in curve and len(curve):
            return float(curve[metric].iloc[-1])
        return value

    def until(self, metric: str, target: str, level: float) -> float:
        """A metric where another first gets as good as a level, NaN if it does not."""
        row = self.record.reached(target, level)
        return math.nan if row is None or metric not in row else float(row[metric])


@dataclass(frozen=True, eq=False)
class PointTable:
    """The points of a figure.

    Attributes
    ----------
    data : a column for each key that tells lines apart, then x (words along an axis of words), y, low, high and n.
    per : those keys.
    curves : whether lines are curves.
    log : the axes that are logarithmic.
    left_out : why runs are not shown, and how many.
    """

    data: pd.DataFrame
    per: tuple[str, ...]
    curves: bool
    log: str
    left_out: Mapping[str, int]


def stored_runs(store: Path, grid: str | None, named: Collection[str]) -> list[FigureRun]:
    """The runs of a store, or of one grid, as `tuned` has them."""
    return tuned(*planned_runs(store, grid), named)


def tuned(grid: StoredGrid, records: Mapping[str, Record], named: Collection[str]) -> list[FigureRun]:
    """The runs of a grid; those that its `select` chooses, unless what it tunes is named."""
    runs = [RecordedRun(cell, records[cell.run]) for cell in grid.cells]
    if grid.command and grid.over and not {*grid.over} & {*named}:
        runs = [run for variant in group(grid, records, "val_loss") for run in variant.runs]
    return [FigureRun(run.record, run.cell.name or "") for run in runs]


def kinds(
    runs: Sequence[FigureRun], formulas: Mapping[str, Formula], per: Sequence[str] = (), planned: bool = False
) -> dict[str, str]:
    """What each name in some formulas, by option, is: "setting", "metric" or "constant"; any may be a metric of runs
    that are only planned.

    Raises
    ------
    ValueError
        If some name is nothing that a run has.
    """
    settings = dict.fromkeys(key for run in runs for key in run.settings)
    metrics = dict.fromkeys(name for run in runs for name in (*run.record.curve, *run.record.numbers))
    kind_of = {}
    for option, formula in formulas.items():
        for name in formula.names:
            part, _, end = name.partition(".")
            if name in settings:
                kind_of[name] = "setting"
            elif name in metrics or (planned and not end):
                kind_of[name] = "metric"
            elif end and part in PARTS and end in NAMES.get(part, [end]):
                kind_of[name] = "constant"
            else:
                constants = [f"{part}.{end}" for end in NAMES.get(part, [])]
                near = did_you_mean(name, [*metrics, *settings, *constants])
                near = near or f"; there are {', '.join(metrics) or 'no metrics'}"
                raise ValueError(f"{option} must be of metrics, settings and constants of parts, got {name!r}{near}")
    for key in per:
        if key == NAME and key not in settings:
            raise ValueError("--per name must be of a grid that names its cells, got none: add name: to the grid file")
        if key not in settings:
            raise ValueError(f"--per must be a setting of some run, got {key!r}{did_you_mean(key, settings)}")
    return kind_of


def points(
    runs: Sequence[FigureRun], x: Formula, y: Formula, per: Sequence[str] = (), log: str | None = None
) -> PointTable:
    """The points of y against x, a line for each value of the keys `per`.

    Parameters
    ----------
    runs : seeds are averaged: arithmetic means, or geometric ones where y is logarithmic, with 95 % intervals.
    log : the axes that are logarithmic, "", "x", "y" or "xy"; None: those of positive numbers that span much.

    Raises
    ------
    ValueError
        If something else varies, if y is no number, or if there is nothing to show.
    """
    left_out = Counter(run.record.state for run in runs if not run.known)
    runs = [run for run in runs if run.known]
    kind = kinds(runs, {"--x": x, "--y": y}, per)
    curves = any(kind[name] == "metric" for name in x.along)
    _refuse_what_varies(runs, kind, per)
    measured = "metric" in kind.values()
    shown = _shown(runs, measured, curves)
    left_out.update(run.record.state for run in runs if run not in shown)
    rows = _rows(shown, x, y, per, curves)
    if rows.empty:
        raise ValueError(f"there must be a run that is done, got {len(runs)} runs, {in_words(left_out) or 'none'}")
    if any(isinstance(value, str) for value in rows["y"]):
        raise ValueError(f"--y must be a number, got {y.text}, which is a word; put it at --x")
    words = any(isinstance(value, str) for value in rows["x"])
    if words and "x" in (log or ""):
        raise ValueError(f"--x must be a number on a logarithmic axis or with --slope, got {x.text}, which is a word")
    good = rows["y"].map(math.isfinite)
    good &= rows["x"].map(lambda value: isinstance(value, str) if words else math.isfinite(value))
    bad = set(rows[~good]["point"])  # a mean over the lucky seeds would flatter
    lost = Counter(run.record.state for run in shown if run.record.state != "done" and measured)
    alike = rows[rows["point"].isin(bad)]["run"].nunique() - lost.total()
    left_out.update(lost + Counter({f"without {x.text} or {y.text}, or at a point with such a run": alike}))
    rows = rows[~rows["point"].isin(bad)] if not curves else rows[good]
    if log is None:
        sent = rows["x"][rows["x"] > 0] if curves and x.text.endswith("bytes") else rows["x"][: 0 if curves else None]
        log = "x" * (not words and spans(sent)) + "y" * spans(rows["y"])
    for axis in log:
        low = rows[axis].astype(float) <= 0
        left_out[f"0 or less on a logarithmic axis {axis}"] += 0 if curves else rows[low]["run"].nunique()
        rows = rows[~low]
    data = _averaged(rows, per, words, "y" in log)
    if data.empty:
        raise ValueError(f"there must be points to show, got none: {in_words(left_out)}")
    return PointTable(data, tuple(per), curves, log, +left_out)


def in_words(left_out: Mapping[str, int]) -> str:
    """Why runs are not shown.

    >>> in_words({"diverged": 2, "queued": 1})
    '2 of them diverged, 1 of them queued'
    """
    return ", ".join(f"{count} of them {why}" for why, count in left_out.items() if count)


def _refuse_what_varies(runs: Sequence[FigureRun], kind: Mapping[str, str], per: Sequence[str]) -> None:
    """Refuse keys that vary among runs which are the same at the axes and in what tells lines apart."""
    table = pd.DataFrame([run.but_seeds for run in runs]).fillna("none")
    parts = [name.partition(".")[0] for name, role in kind.items() if role == "constant"]
    varying = [key for key in table if table[key].nunique() > 1]
    free = [key for key in varying if key in {*kind, *per} or key.partition(".")[0] in parts]
    alike = table.groupby(free) if free else table
    loose = [key for key in varying if key not in (*free, NAME) and np.max(alike[key].nunique()) > 1]
    loose = [key for key in loose if key.rpartition(".")[0] not in loose]  # a part, not all that it brings along
    if loose:
        values = dict.fromkeys(table[loose[0]])
        raise ValueError(
            f"{' and '.join(loose)} must be at an axis, tell lines apart or be fixed, got {loose[0]} "
            f"{', '.join(values)}: a mean over them says nothing; add --per {loose[0]} (in Python, by) or --only "
            f"{loose[0]}={next(iter(values))}"
        )


def _shown(runs: Sequence[FigureRun], measured: bool, curves: bool) -> list[FigureRun]:
    """All runs where nothing is measured, those that ended; curves of what is under way if there is nothing else."""
    if not measured:
        return list(runs)
    if curves:
        done = [run for run in runs if run.record.state == "done"]
        return done or [run for run in runs if len(run.record.curve)]
    return [run for run in runs if run.record.state not in UNFINISHED]


def _rows(runs: Sequence[FigureRun], x: Formula, y: Formula, per: Sequence[str], curves: bool) -> pd.DataFrame:
    """A row for each run and evaluation: run, point (of runs that differ in seeds alone), step, x, y and the keys."""
    rows: list[dict[str, Any]] = []
    for run in runs:
        x_of, y_of = (
            formula(lambda name: run.value(name, curves), run.last, run.until)  # noqa: B023
            for formula in (x, y)
        )
        point = repr(sorted(run.but_seeds.items()))
        steps = run.record.curve["step"].tolist() if curves else [0]
        for step, one, other in zip(
            steps, *(np.broadcast_to(v, len(steps)).tolist() for v in (x_of, y_of)), strict=True
        ):
            keys = {key: run.settings.get(key, "") for key in per}
            rows.append({"run": run.record.id, "point": point, "step": step, **keys, "x": one, "y": other})
    return pd.DataFrame(rows)


def _averaged(rows: pd.DataFrame, per: Sequence[str], words: bool, log: bool) -> pd.DataFrame:
    """Means over seeds, at steps that all of them have."""
    means = []
    for _, point in rows.groupby("point", sort=False):
        n = point["run"].nunique()
        for _, at_step in point.groupby("step"):
            if len(at_step) == n:
                x = at_step["x"].iloc[0] if words else float(at_step["x"].mean())
                keys = {key: at_step[key].iloc[0] for key in per}
                means.append(keys | dict(zip(COLUMNS, (x, *interval(at_step["y"], log), n), strict=True)))
    return pd.DataFrame(means, columns=[*per, *COLUMNS])
