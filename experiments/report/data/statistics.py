"""What a table may claim about a few seeds: means with Student's t, differences paired by seed, first crossings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
ROUNDING = 1e-9  # a difference of so small a part of what it is between is none
MUCH = 8.0  # times the least: what is positive and spans so much is shown by logarithm


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds; `half` is half the width of its 95 % interval, None if one seed cannot tell.

    With `log` the mean is geometric, and the interval is that of the logarithm; of two values it is of their ratio.
    """

    mean: float
    half: float | None
    n: int
    log: bool = False

    @property
    def shift(self) -> float:
        """The distance of a difference from 0, or of a ratio from 1 by its logarithm."""
        return math.log(self.mean) if self.log else self.mean

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; the mean where one seed has none."""
        half = self.half or 0.0
        if self.log:
            return self.mean * math.exp(-half), self.mean * math.exp(half)
        return self.mean - half, self.mean + half

    @property
    def tells(self) -> bool:
        """Whether the interval excludes "no difference"."""
        return self.half is not None and abs(self.shift) > self.half


def spans(values: Iterable[float]) -> bool:
    """Are values shown by logarithm: all positive, and the largest `MUCH` times the least at least?

    >>> spans([1e-6, 3e-3]), spans([0.5, 1.0]), spans([0.0, 1.0]), spans([])
    (True, False, False, False)
    """
    every = list(values)
    return bool(every) and 0 < MUCH * min(every) <= max(every)


def estimate(values: Iterable[float], log: bool = False) -> Estimate | None:
    """Mean and 95 % interval by Student's t; values that are not finite do not count, and None is left if none does.

    With `log` those of the logarithms of positive values.

    >>> result = estimate([1.0, 2.0, 3.0])
    >>> result.mean, round(result.half, 3), result.n
    (2.0, 2.484, 3)
    >>> estimate([1.0]), estimate([math.nan])
    (Estimate(mean=1.0, half=None, n=1, log=False), None)
    >>> result = estimate([1e-6, 1e-4], log=True)
    >>> round(result.mean, 9), round(result.half, 1)
    (1e-05, 29.3)
    """
    finite = np.array([value for value in values if math.isfinite(value)])
    n = len(finite)
    if n == 0:
        return None
    if log:
        logarithm = estimate(np.log(finite))
        return logarithm and Estimate(math.exp(logarithm.mean), logarithm.half, n, log=True)
    mean = float(finite.mean())
    if n == 1:
        return Estimate(mean, None, 1)
    same = bool(np.ptp(finite) <= ROUNDING * np.abs(finite).max())
    return Estimate(mean, 0.0 if same else float(t_quantile(n - 1) * finite.std(ddof=1) / math.sqrt(n)), n)


def interval(values: Iterable[float], log: bool) -> tuple[float, float, float]:
    """The mean and the ends of its 95 % interval; on a logarithmic axis those of the logarithms.

    >>> [round(end, 3) for end in interval([0.5, 1.0, 2.0], log=True)]
    [1.0, 0.179, 5.595]
    """
    finite = [value for value in values if math.isfinite(value)]
    result = estimate(finite, log and min(finite, default=0.0) > 0)
    return (result.mean, *result.ends) if result else (math.nan, math.nan, math.nan)


def t_quantile(freedom: int) -> float:
    """How many standard errors a 95 % interval reaches to either side.

    >>> [round(t_quantile(freedom), 2) for freedom in (1, 2, 4, 1000)]
    [12.71, 4.3, 2.78, 1.96]
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))


def paired(values: Mapping[int, float], baseline: Mapping[int, float], log: bool = False) -> Estimate | None:
    """The mean of values minus those of a base over the seeds that both have: what a seed does to both cancels.

    With `log` the geometric mean of the values over the base's, where both are positive.

    >>> paired({0: 0.75, 1: 0.5, 7: 0.1}, {0: 0.5, 1: 0.25, 8: 0.9})
    Estimate(mean=0.25, half=0.0, n=2, log=False)
    >>> paired({0: 0.1 + 0.2}, {0: 0.3})
    Estimate(mean=0.0, half=None, n=1, log=False)
    >>> paired({0: 1e-3, 1: 4e-6}, {0: 2e-3, 1: 8e-6}, log=True)
    Estimate(mean=0.5, half=0.0, n=2, log=True)
    """
    shared = [(values[seed], baseline[seed]) for seed in sorted(values.keys() & baseline.keys())]
    if log:
        return estimate((x / y for x, y in shared if x > 0 and y > 0), log=True)
    return estimate(0.0 if math.isclose(x, y, rel_tol=ROUNDING) else x - y for x, y in shared)


def higher_is_better(metric: str) -> bool:
    """Accuracies are to be high, everything else (losses, distances) low.

    >>> higher_is_better("test_accuracy"), higher_is_better("val_loss")
    (True, False)
    """
    return metric.endswith("accuracy")


def best(means: Sequence[float], metric: str) -> int:
    """The position of the best of the means, the first of equals.

    >>> best([0.5, 0.7, 0.7], "val_accuracy"), best([0.5, math.nan], "val_loss")
    (1, 0)
    """
    sign = 1.0 if higher_is_better(metric) else -1.0
    return max(range(len(means)), key=lambda i: -math.inf if math.isnan(means[i]) else sign * means[i])


def first_reached(curve: pd.DataFrame, metric: str, target: float) -> pd.Series | None:
    """Where the metric first gets as good as the target: all numbers, on straight lines between two evaluations.

    >>> import pandas as pd
    >>> curve = pd.DataFrame({"step": [10, 20, 30], "val_accuracy": [0.5, 0.75, 0.7]})
    >>> float(first_reached(curve, "val_accuracy", 0.6)["step"]), first_reached(curve, "val_accuracy", 0.9)
    (14.0, None)
    """
    if metric not in curve:
        return None
    good = curve[metric].ge(target) if higher_is_better(metric) else curve[metric].le(target)
    if not good.any():
        return None
    numbers, first = curve.select_dtypes("number").astype(float), int(good.to_numpy().argmax())
    after, before = numbers.iloc[first], numbers.iloc[max(0, first - 1)]
    share = (target - before[metric]) / (after[metric] - before[metric]) if first else 1.0
    return before + share * (after - before) if math.isfinite(share) else after


def pareto_front(costs: Sequence[float], values: Sequence[float], metric: str) -> list[int]:
    """Positions, cheapest first, of the points that no other beats in one coordinate without losing in the other.

    >>> pareto_front([1, 2, 3, 4], [0.5, 0.9, 0.8, 0.95], "val_accuracy")
    [0, 1, 3]
    """
    sign = 1.0 if higher_is_better(metric) else -1.0
    front: list[int] = []
    for i in sorted(range(len(costs)), key=lambda i: (costs[i], -sign * values[i])):
        if not front or sign * values[i] > sign * values[front[-1]]:
            front.append(i)
    return front


def mean_curve(rows: pd.DataFrame, x: str, y: str, log: bool = False) -> pd.DataFrame:
    """Means and 95 % intervals over seeds at each step that all of them have: columns step, x, y, low, high, n.

    The interval is that of `estimate`, which tables have, with `log` that of the logarithms; one seed has none.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"run": list("aab"), "step": [1, 2, 1], "loss": [4.0, 3.0, 2.0]})
    >>> mean_curve(rows, "step", "loss").round(1).to_dict("records")
    [{'step': 1, 'x': 1.0, 'y': 3.0, 'low': -9.7, 'high': 15.7, 'n': 2}]
    """
    import pandas as pd

    points = rows.dropna(subset=[x, y])
    points = points.assign(**{y: np.log(points[y])}) if log else points
    steps = points.assign(x=points[x].astype(float)).groupby("step")
    runs = points[["run", "step"]].drop_duplicates().groupby("step").size()
    means = pd.DataFrame({"x": steps["x"].mean(), "y": steps[y].mean(), "n": runs})
    n = int(runs.max()) if len(runs) else 0
    half = t_quantile(n - 1) * steps[y].std() / math.sqrt(n) if n > 1 else 0.0
    means = means.assign(low=means["y"] - half, high=means["y"] + half)[["x", "y", "low", "high", "n"]]
    means = means.assign(**{name: np.exp(means[name]) for name in ("y", "low", "high")}) if log else means
    return means[means["n"] == n].reset_index()
