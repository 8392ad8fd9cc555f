"""Comparisons of numbers over seeds: each gives a verdict, and the numbers that say so.

Values with a seed are compared seed by seed, so what a seed does to both cancels. A difference counts where its 95 %
interval leaves zero out; of `beyond` where it is more standard errors than asked. At least three seeds are needed,
except where no seed changes anything (`exact`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from commeff.experiments.report.data.statistics import ROUNDING, t_quantile

HOLDS, FAILS, UNTOLD = "holds", "fails", "cannot be told at this scale"
FEWEST = 3  # seeds that can tell
Value = float | dict[int, float]
Verdict = tuple[str, str]


@dataclass(frozen=True)
class Spread:
    """The mean of a difference over seeds, its standard error, and half of its 95 % interval."""

    mean: float
    error: float
    half: float


def beyond(low: Value, high: Value, sigmas: float, exact: bool = False) -> Verdict:
    """Is `low` below `high` by more than so many standard errors?

    >>> beyond({0: 1.0, 1: 1.1, 2: 0.9}, {0: 2.0, 1: 2.2, 2: 2.1}, 3.0)[0]
    'holds'
    >>> beyond({0: 1.0, 1: 1.1, 2: 0.9}, {0: 1.0, 1: 1.2, 2: 0.8}, 3.0)[0]
    'cannot be told at this scale'
    """
    words = f"{shown(low)} against {shown(high)}"
    spread = spread_of(low, high, exact)
    if isinstance(spread, str):
        return UNTOLD, f"{words}: {spread}"
    reason = f"{words}: difference {_digits(spread.mean)}, standard error {_digits(spread.error)}, {sigmas:g} needed"
    if spread.mean < -sigmas * spread.error:
        return HOLDS, reason
    reversed_ = spread.mean > sigmas * spread.error or spread.mean == spread.error == 0
    return (FAILS if reversed_ else UNTOLD), reason


def near(left: Value, right: Value, by: float, exact: bool = False) -> Verdict:
    """Are they no more than `by` apart?

    >>> near({0: 1.0, 1: 1.1, 2: 0.9}, 1.05, 0.5)[0], near(1.0, 2.0, 0.5)[0]
    ('holds', 'fails')
    """
    words = f"{shown(left)} against {shown(right)}"
    spread = spread_of(left, right, exact)
    if isinstance(spread, str):
        return UNTOLD, f"{words}: {spread}"
    reason = f"{words}: difference {_with_half(spread)}, at most {by:.4g} allowed"
    if abs(spread.mean) + spread.half <= by:
        return HOLDS, reason
    return (FAILS if abs(spread.mean) - spread.half > by else UNTOLD), reason


def related(left: Value, sign: str, right: Value, exact: bool = False) -> Verdict:
    """Does left < right hold, or with <=, > or >= in its place?

    >>> related(1.0, "<=", 1.0)[0], related(1.0, "<", 1.0)[0], related({0: 3.0, 1: 3.1, 2: 3.0}, ">", 2.0)[0]
    ('holds', 'fails', 'holds')
    """
    words = f"{shown(left)} {sign} {shown(right)}"
    spread = spread_of(left, right, exact)
    if isinstance(spread, str):
        return UNTOLD, f"{words}: {spread}"
    reason = f"{words}: difference {_with_half(spread)}" if spread.half else words
    middle, loose = spread.mean if sign[0] == "<" else -spread.mean, len(sign) == 2
    low, high = middle - spread.half, middle + spread.half
    if high < 0 or (loose and high <= 0):
        return HOLDS, reason
    return (FAILS if low > 0 or (not loose and low >= 0) else UNTOLD), reason


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst of several verdicts, and the reasons of those that are so.

    >>> all_of([(HOLDS, "a"), (UNTOLD, "b")])
    ('cannot be told at this scale', 'b')
    """
    worst = next(kind for kind in (FAILS, UNTOLD, HOLDS) if any(verdict == kind for verdict, _ in verdicts))
    return worst, "; ".join(reason for verdict, reason in verdicts if verdict == worst)


def spread_of(left: Value, right: Value, exact: bool) -> Spread | str:
    """Of left - right over the seeds that both have; or why it cannot be told.

    An infinite number is one that was never reached: it lies beyond all that were, and two of them tell nothing.
    """
    difference = each(_minus, left, right)
    if not isinstance(difference, dict):
        return Spread(difference, 0.0, 0.0)
    values = np.array([*difference.values()])
    if len(values) < (1 if exact else FEWEST):
        return f"{len(values)} seed{'s' * (len(values) != 1)}, {FEWEST} needed"
    if np.isnan(values).any():
        return "some seed has neither"
    if np.isinf(values).any():
        same = bool((values == values[0]).all())
        return Spread(float(values[0]), 0.0, 0.0) if same else "some seeds got there and some did not"
    if len(values) == 1 or np.ptp(values) <= ROUNDING * abs(values).max():
        return Spread(float(values.mean()), 0.0, 0.0)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    return Spread(float(values.mean()), error, t_quantile(len(values) - 1) * error)


def each(function: Callable[[float, float], float], left: Value, right: Value) -> Value:
    """A function of two values, seed by seed over the seeds that both have.

    >>> each(lambda a, b: a - b, {0: 3.0, 1: 4.0}, {1: 1.0, 2: 0.0}), each(lambda a, b: a * b, 2.0, 3.0)
    ({1: 3.0}, 6.0)
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return {seed: function(left[seed], right[seed]) for seed in sorted(left.keys() & right.keys())}
    if isinstance(left, dict):
        return {seed: function(value, right) for seed, value in left.items() if not isinstance(right, dict)}
    if isinstance(right, dict):
        return {seed: function(left, value) for seed, value in right.items()}
    return function(left, right)


def mean(value: Value) -> float:
    """Over the seeds."""
    return value if not isinstance(value, dict) else float(np.mean([*value.values()])) if value else math.nan


def shown(value: Value) -> str:
    """A number, or the mean over seeds with half its interval.

    >>> shown(0.123456), shown({0: 1.0, 1: 1.0}), shown({0: math.inf, 1: math.inf}), shown({})
    ('0.123456', '1', 'never', '–')
    """
    if not isinstance(value, dict):
        return "never" if math.isinf(value) else f"{value:.6g}"
    values = np.array([*value.values()])
    if not len(values):
        return "–"
    if np.isinf(values).any():
        return "never" if np.isinf(values).all() else f"reached by {np.isfinite(values).sum()} of {len(values)} seeds"
    if len(values) < 2 or np.ptp(values) <= ROUNDING * abs(values).max():
        return f"{values.mean():.6g}"
    half = t_quantile(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return f"{values.mean():.6g} ± {half:.2g}"


def _minus(left: float, right: float) -> float:
    return math.nan if math.isinf(left) and math.isinf(right) else left - right


def _digits(value: float) -> str:
    return f"{value:.3g}"


def _with_half(spread: Spread) -> str:
    return f"{spread.mean:.3g} ± {spread.half:.2g}" if spread.half else f"{spread.mean:.3g}"
