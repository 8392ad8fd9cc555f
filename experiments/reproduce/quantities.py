"""Quantities of a case, each a number for each seed: a metric at the end, what a curve says of it, a function of the
case, or arithmetic with these.

A quantity is shown, printed, drawn and, asked of a variant, claimed: `gap = floor("val_loss")`, `show = [gap]`,
`gap(r.d2) < 1e-6 * gap(r.dsgd)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from commeff.experiments.report.data.statistics import higher_is_better
from commeff.experiments.reproduce.constants import CaseView, MissingPartError, number_of
from commeff.experiments.reproduce.reading import TableError
from commeff.experiments.reproduce.results import CaseResult, Observation, Results
from commeff.experiments.reproduce.values import SIGNS, Arithmetic, TableVariant, Value
from commeff.experiments.reproduce.verdicts import measured, silence

TAIL = 0.25  # the part of a curve that is its floor
DOWN_TO = 1e-12  # of its first value: below, a curve may be rounding
BINDING = {"+": 0, "-": 0, "*": 1, "/": 1, "**": 2}  # of the last sign of a text
ATOM = 3


@dataclass(frozen=True, eq=False)
class TableQuantity(Arithmetic):
    """A number of a case for each seed.

    Attributes
    ----------
    text : as a page shows it.
    metrics : recorded numbers that it is of.
    number : of a case with one seed; NaN where there is none.
    beside : the variant that it is beside, if any.
    binding : of the last sign in its text.
    """

    text: str
    metrics: tuple[str, ...]
    number: Callable[[Results, CaseResult, int], float]
    beside: str = ""
    binding: int = ATOM

    def by_seed(self, results: Results, result: CaseResult) -> dict[int, float]:
        """Its numbers; seeds that have none are left out."""
        numbers = {seed: self.number(results, result, seed) for seed in result.runs}
        return {seed: value for seed, value in numbers.items() if not math.isnan(value)}

    def __call__(self, variant: TableVariant) -> Value:
        """Its value for the only case of a variant at a place."""
        variant.results.table.check_quantity(self)
        if variant.result is None or not variant.runs:
            return variant.absent()
        numbers = self.by_seed(variant.results, variant.result)
        left_out = {seed: variant.name for seed in variant.runs if seed not in numbers}
        absent = "" if numbers else f"{variant.name} has no {self.text}"
        return Value(numbers, {} if absent else left_out, variant.place, variant.results.table.exact, absent)

    def _with(self, sign: str, left: object, right: object) -> TableQuantity:
        """Two quantities with a sign between them; it has no number where one of them has none.

        >>> (final("a") / final("b") * 4).text, (final("a") / (final("b") - 1)).text
        ('a / b * 4', 'a / (b - 1)')
        """
        binding, one, two = BINDING[sign], quantity(left), quantity(right)

        def number(results: Results, result: CaseResult, seed: int) -> float:
            return measured(SIGNS[sign], one.number(results, result, seed), two.number(results, result, seed))

        pairs = ((one, binding), (two, binding + 1))
        text = f" {sign} ".join(f"({of.text})" if of.binding < least else of.text for of, least in pairs)
        return TableQuantity(text, one.metrics + two.metrics, number, one.beside or two.beside, binding)


def quantity(of: object) -> TableQuantity:
    """What a table shows, prints or draws: the name of a metric, a quantity, a function of the case or a number."""
    if isinstance(of, TableQuantity):
        return of
    if isinstance(of, str):
        return final(of)
    if callable(of):
        return _of_case(of)
    if isinstance(of, (int, float)) and not isinstance(of, bool):
        value = float(of)
        return TableQuantity(f"{of:.15g}", (), lambda results, result, seed: value)
    raise TableError(f"a quantity is a metric, floor(...) or another of one, or a function of the case, got {of!r}")


def _of_case(function: Callable[[Any], Any]) -> TableQuantity:
    """A function of the case, where the case has the parts that it needs."""
    name = getattr(function, "__name__", "a function")

    def number(results: Results, result: CaseResult, seed: int) -> float:
        try:
            return number_of(function(CaseView(results.table, result.case, seed=seed)), name)
        except MissingPartError:
            return math.nan

    return TableQuantity(name, (), number)


def _of_run(text: str, measure: Callable[[Observation], float], *metrics: str) -> TableQuantity:
    """A quantity of a run; of one that diverged it is worse than all others: infinite, of accuracies -infinite."""
    for metric in metrics:
        if not isinstance(metric, str):
            raise TableError(f"{text.partition('(')[0]} takes the name of a metric, got {metric!r}")

    def number(results: Results, result: CaseResult, seed: int) -> float:
        run = result.runs[seed]
        if run.state == "diverged":
            return -math.inf if higher_is_better(metrics[-1]) else math.inf
        return measure(run)

    return TableQuantity(text, metrics, number)


def final(metric: str) -> TableQuantity:
    """The metric at the end of a run."""
    return _of_run(str(metric), lambda run: run.final(metric), metric)


def floor(metric: str) -> TableQuantity:
    """The mean over the last quarter of the evaluations."""

    def measure(run: Observation) -> float:
        values = run.column(metric)[metric].to_numpy(dtype=float)
        return float(values[-max(1, math.ceil(TAIL * len(values))) :].mean()) if len(values) else math.nan

    return _of_run(f"floor({metric})", measure, metric)


def least(metric: str) -> TableQuantity:
    """The smallest evaluation."""
    return _of_run(f"least({metric})", lambda run: float(run.column(metric)[metric].min()), metric)


def rate(metric: str, down_to: float = DOWN_TO) -> TableQuantity:
    """The factor a step by which it falls, until it is below `down_to` of its start: exp of its logarithm's slope."""

    def measure(run: Observation) -> float:
        column = run.column(metric)
        column = column[column[metric] > 0]
        if len(column):
            below = (column[metric] < down_to * column[metric].iloc[0]).to_numpy()
            column = column[: int(below.argmax())] if below.any() else column
        if len(column) < 3:
            return math.nan
        return math.exp(line_slope(column["step"].to_numpy(dtype=float), np.log(column[metric].to_numpy(dtype=float))))

    return _of_run(f"rate({metric}{'' if down_to == DOWN_TO else f', down_to={short(down_to)}'})", measure, metric)


def to(metric: str, level: float, of: str = "wire_bytes") -> TableQuantity:
    """The first evaluated `of` at which the metric is at most `level` (an accuracy: at least); infinite if never."""

    def measure(run: Observation) -> float:
        if metric not in run.curve or of not in run.curve:
            return math.nan
        good = run.curve[metric] >= level if higher_is_better(metric) else run.curve[metric] <= level
        return float(run.curve[of][good].iloc[0]) if good.any() else math.inf

    return _of_run(f"to({metric}, {short(level)}{'' if of == 'wire_bytes' else f', of={of}'})", measure, metric, of)


def onset(metric: str, beside: str, factor: float) -> TableQuantity:
    """The first evaluated step from which on it is at most `factor` times that of the variant `beside` at the same step
    (an accuracy: at least the other's over `factor`); infinite if never.

    The case beside is that whose labels are the same, as far as the variant has them.
    """
    if not factor > 1:
        raise TableError(f"the factor of onset must be more than 1, got {factor:g}")

    def number(results: Results, result: CaseResult, seed: int) -> float:
        other = results.like(result, beside)
        if other is None or other is result or seed not in other.runs or other.runs[seed].state == "diverged":
            return math.nan
        run = result.runs[seed]
        both = run.column(metric).merge(other.runs[seed].column(metric), on="step", suffixes=("", " beside"))
        if not len(both):
            return math.nan
        values, bounds = both[metric], both[f"{metric} beside"]
        far = both["step"][values < bounds / factor if higher_is_better(metric) else values > factor * bounds]
        after = both["step"][both["step"] > far.max()] if len(far) else both["step"]
        return float(after.iloc[0]) if len(after) and run.state != "diverged" else math.inf

    return TableQuantity(f"onset({metric}, {beside}, {factor:g})", (metric,), number, beside)


def short(number: float) -> str:
    """A level as one writes it.

    >>> short(1e-6), short(0.01), short(0.3), short(25)
    ('1e-6', '1e-2', '0.3', '25')
    """
    plain = f"{number:g}".replace("e-0", "e-").replace("e+0", "e")
    power = f"{number:e}".replace("e-0", "e-").replace("e+0", "e")
    scientific = "".join([power.partition("e")[0].rstrip("0").rstrip("."), "e", power.partition("e")[2]])
    return scientific if abs(number) < 0.1 and len(scientific) <= len(plain) else plain


def slope(y: str | TableQuantity, x: str | Callable[[Any], Any], log: str = "xy") -> Callable[[TableVariant], Value]:
    """The slope of a quantity over a label, of a line of least squares in logarithms: slope(gap, "lr")(r.dsgd).

    With `log` "x", "y" or "" one axis or none is logarithmic. It is of all cases of a variant at a place; a seed that
    lacks a point has no say.
    """
    if log not in ("", "x", "y", "xy"):
        raise TableError(f"log must be x, y or xy, got {log!r}")
    height = quantity(y)

    def on(axis: str, number: float) -> float:
        if axis not in log:
            return number
        return math.log(number) if 0 < number < math.inf else math.nan

    def value(variant: TableVariant) -> Value:
        results, slopes, left_out = variant.results, dict[int, float](), dict[int, str]()
        results.table.check_quantity(height)
        cases = results.named(variant.name, variant.where)
        views = [CaseView(results.table, case.case) for case in cases]
        numbers = [number_of(c[x] if isinstance(x, str) else x(c), "the second argument of slope") for c in views]
        places = np.array([on("x", number) for number in numbers])
        seeds = sorted({seed for case in cases for seed in case.runs})
        if not seeds:
            return variant.absent()
        points = [height.by_seed(results, case) for case in cases]
        for seed in seeds:
            heights = [on("y", point.get(seed, math.nan)) for point in points]
            lacking = [case.words for case, height in zip(cases, heights, strict=True) if not math.isfinite(height)]
            if lacking:
                left_out[seed] = lacking[0]
            else:
                slopes[seed] = line_slope(places, np.array(heights))
        if any(map(math.isfinite, slopes.values())):
            return Value(slopes, left_out, variant.place, results.table.exact)
        return Value({}, {}, variant.place, absent=f"no seed has a number at every point of a line{silence(left_out)}")

    return value


def line_slope(x: np.ndarray, y: np.ndarray) -> float:
    """The slope of the straight line of least squares; NaN where there is none.

    >>> line_slope(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    2.0
    """
    good = np.isfinite(x) & np.isfinite(y)
    x, y = x[good], y[good]
    if len(x) < 2 or np.ptp(x) == 0:
        return math.nan
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
