"""Numbers of one run: what it has at its end, and what its curve says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from commeff.experiments.report.data.statistics import higher_is_better

if TYPE_CHECKING:
    import pandas as pd

TAIL = 0.25  # the part of a curve that is its floor
DOWN_TO = 1e-12  # of its first value: below, a curve may be rounding
Metric = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, eq=False)
class Observation:
    """A case with one seed: numbers at the end, and the curve over steps, which may be empty.

    `comparable`: whether the run has what the table's printed numbers are of.
    """

    finals: Mapping[str, float]
    curve: pd.DataFrame = field(default_factory=lambda: _frame({}), repr=False)
    state: str = "done"
    run: str = ""
    comparable: bool = True

    def final(self, metric: str) -> float:
        """The number at the end; where the run diverged, worse than all others: infinite, of accuracies -infinite."""
        if self.state == "diverged":
            return worst(metric)
        return self.finals.get(metric, math.nan)

    def column(self, metric: str) -> pd.DataFrame:
        """The evaluations of a metric, with their steps."""
        if metric not in self.curve:
            return _frame({"step": [], metric: []})
        return self.curve[["step", metric]].dropna()


def _frame(columns: Mapping[str, list[float]]) -> pd.DataFrame:
    import pandas as pd  # slow, and not needed before anything has run

    return pd.DataFrame(columns)


def worst(metric: str) -> float:
    """What lies beyond all bad values.

    >>> worst("val_loss"), worst("test_accuracy")
    (inf, -inf)
    """
    return -math.inf if higher_is_better(metric) else math.inf


def final(seen: Observation, metric: str) -> float:
    """At the end."""
    return seen.final(metric)


def floor(seen: Observation, metric: str) -> float:
    """The mean over the last quarter of the evaluations."""
    if seen.state == "diverged":
        return worst(metric)
    values = seen.column(metric)[metric].to_numpy(dtype=float)
    return float(values[-max(1, math.ceil(TAIL * len(values))) :].mean()) if len(values) else math.nan


def least(seen: Observation, metric: str) -> float:
    """The smallest evaluation."""
    values = seen.column(metric)[metric]
    return float(values.min()) if len(values) else math.nan


def rate(seen: Observation, metric: str, down_to: float = DOWN_TO) -> float:
    """The factor a step by which it falls: exp of the slope of its logarithm, until it is below `down_to` of its start.

    >>> import pandas as pd
    >>> curve = pd.DataFrame({"step": [10, 20, 30], "gap": [1.0, 0.5, 0.25]})
    >>> round(rate(Observation({}, curve), "gap") ** 10, 12)
    0.5
    """
    if seen.state == "diverged":
        return math.inf
    column = seen.column(metric)
    column = column[column[metric] > 0]
    if len(column):
        below = (column[metric] < down_to * column[metric].iloc[0]).to_numpy()
        column = column[: int(below.argmax())] if below.any() else column
    if len(column) < 3:
        return math.nan
    return math.exp(slope(column["step"].to_numpy(dtype=float), np.log(column[metric].to_numpy(dtype=float))))


def to(seen: Observation, metric: str, level: float, of: str = "wire_bytes") -> float:
    """The first evaluated `of` at which the metric is at most `level` (an accuracy: at least); infinite if never."""
    if metric not in seen.curve or of not in seen.curve:
        return math.nan
    good = seen.curve[metric] >= level if higher_is_better(metric) else seen.curve[metric] <= level
    return float(seen.curve[of][good].iloc[0]) if good.any() else math.inf


def onset(seen: Observation, beside: Observation, metric: str, factor: float) -> float:
    """The first evaluated step from which on the metric is at most `factor` times another run's at the same step (an
    accuracy: at least the other's over `factor`); infinite if never.

    >>> import pandas as pd
    >>> step, slow, fast = [10, 20, 30, 40], [9.0, 2.0, 3.0, 1.1], [1.0, 1.0, 1.0, 1.0]
    >>> runs = [Observation({}, pd.DataFrame({"step": step, "gap": gap})) for gap in (slow, fast)]
    >>> onset(*runs, "gap", 2.5), onset(*runs, "gap", 1.05)
    (40.0, inf)
    """
    both = seen.column(metric).merge(beside.column(metric), on="step", suffixes=("", " beside"))
    if not len(both) or beside.state == "diverged":
        return math.nan
    ours, theirs = both[metric], both[f"{metric} beside"]
    far = both["step"][ours < theirs / factor if higher_is_better(metric) else ours > factor * theirs]
    after = both["step"][both["step"] > far.max()] if len(far) else both["step"]
    return float(after.iloc[0]) if len(after) and seen.state != "diverged" else math.inf


def derived(seen: Observation, metrics: Mapping[str, Metric]) -> Observation:
    """With metrics that are functions of recorded ones, at the end and along the curve.

    >>> import pandas as pd
    >>> both = Observation({"a": 3.0, "b": 4.0}, pd.DataFrame({"step": [1], "a": [6.0], "b": [8.0]}))
    >>> found = derived(both, {"c": lambda m: (m["a"] ** 2 + m["b"] ** 2) ** 0.5})
    >>> found.final("c"), list(found.curve["c"])
    (5.0, [10.0])
    """
    if not metrics:
        return seen
    finals, curve = dict(seen.finals), seen.curve.copy()
    for name, function in metrics.items():
        finals[name] = _number(function, finals)
        if len(curve):
            curve[name] = [_number(function, row) for row in curve.to_dict("records")]
    return replace(seen, finals=finals, curve=curve)


def _number(function: Metric, numbers: Mapping[str, float]) -> float:
    """NaN where a number is missing, or where these have no such number, such as the logarithm of 0."""
    try:
        found = function(numbers)
    except (KeyError, ArithmeticError, ValueError):
        return math.nan
    return math.nan if isinstance(found, complex) else float(found)


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of the straight line of least squares; NaN where there is none.

    >>> slope(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    2.0
    """
    good = np.isfinite(x) & np.isfinite(y)
    x, y = x[good], y[good]
    if len(x) < 2 or np.ptp(x) == 0:
        return math.nan
    return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


def measured(function: Callable[..., float], *numbers: float) -> float:
    """A function of numbers that were measured: NaN where these have none, as 1 / 0.

    An infinite number stands for a run that diverged or never got there; what is made of it is still that, or nothing.

    >>> from operator import sub, truediv
    >>> measured(truediv, math.inf, 2.0), measured(truediv, 2.0, math.inf), measured(sub, 0.0, math.inf)
    (inf, nan, nan)
    >>> measured(min, math.inf, 2.0), measured(truediv, 1.0, 0.0)
    (2.0, nan)
    """
    try:
        found = function(*numbers)
    except (ArithmeticError, ValueError):
        return math.nan
    if isinstance(found, complex):
        return math.nan
    return found if found in numbers or not any(map(math.isinf, numbers)) else math.nan
