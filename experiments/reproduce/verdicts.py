"""Comparisons of numbers over seeds: what each comes to, its p-value, and the numbers that say so.

Values with a seed are compared seed by seed, so what a seed does to both cancels. Of n paired values d with the mean m
and the standard deviation s, t = (m - bound) sqrt(n) / s has Student's distribution with n - 1 degrees of freedom, and
p is twice its tail: p < 0.05 says that the 95 % interval leaves the bound out. Orders of positive numbers are compared
by d = log(a / b), all others by d = a - b. At least three seeds are needed, except where no seed changes anything
(`exact`); where all seeds have the same d, no p-value is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from commeff.experiments.report.data.statistics import CONFIDENCE, ROUNDING, Estimate, estimate, t_quantile
from commeff.experiments.reproduce.reading import TableError

HOLDS, FAILS, UNTOLD = "holds", "fails", "inconclusive"
FEWEST = 3  # seeds that can tell
ALL = -1  # in place of a seed: the number is that of all seeds
Numbers = dict[int, float]


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a comparison comes to.

    Attributes
    ----------
    lean : what the means say, holds or fails; inconclusive where there is nothing to compare.
    numbers : that say so, in words, or why there are none.
    p : the probability of means so far on their side by chance; None where chance has no part in it. That of a claim is
        corrected for the number of claims of its page.
    left_out : the seeds that had no say, and what has no number there.
    place : the labels at which it is judged.
    parts : the comparisons of which all must hold, if it is of several.
    """

    lean: str
    numbers: str
    p: float | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)
    place: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[Judgement, ...] = ()

    @property
    def state(self) -> str:
        """What it comes to: what the means say, if that is no chance."""
        return self.lean if self.p is None or self.p < 1 - CONFIDENCE else UNTOLD

    @property
    def reason(self) -> str:
        """The numbers, and which seeds had no say."""
        return self.numbers + silence(self.left_out)

    def __and__(self, other: object) -> Judgement:
        """Both judgements: the worse of the two, with the reasons of those that are so."""
        return all_of([self, other]) if isinstance(other, Judgement) else NotImplemented

    def __bool__(self) -> bool:
        raise TableError(
            "a comparison of measured values may not be told, so it is neither true nor false: write "
            "(a < b) & (b < c) for a < b < c and `and`, and apply(min, a, b) for min(a, b)"
        )


def near(left: Numbers, right: Numbers, by: float, exact: bool = False) -> Judgement:
    """Whether they are no more than `by` apart: both one-sided tests must say so, the weaker one gives p.

    >>> near({0: 1.0, 1: 1.1, 2: 0.9}, {ALL: 1.05}, 0.5).lean, near({ALL: 1.0}, {ALL: 2.0}, 0.5).lean
    ('holds', 'fails')
    """
    left, right = aligned(left, right)
    words = f"{shown(left)} against {shown(right)}"
    gap = mean_gap(_minus, left, right, exact)
    if isinstance(gap, str):
        return Judgement(UNTOLD, f"{words}: {gap}")
    interval = f" ± {gap.half:.2g}" if gap.half else ""
    reason = f"{words}: difference {gap.mean:.3g}{interval}, at most {by:.4g} allowed"
    return Judgement(HOLDS if abs(gap.mean) <= by else FAILS, reason, _beyond(gap, math.copysign(by, gap.mean)))


def related(left: Numbers, sign: str, right: Numbers, exact: bool = False) -> Judgement:
    """Whether left < right holds, or with <=, > or >= in its place.

    >>> related({ALL: 1.0}, "<=", {ALL: 1.0}).lean, related({ALL: 1.0}, "<", {ALL: 1.0}).lean
    ('holds', 'fails')
    >>> found = related({0: 3.0, 1: 3.3, 2: 3.0}, ">", {ALL: 2.0})
    >>> found.lean, round(found.p, 4), found.reason
    ('holds', 0.0052, '3.1 ± 0.43 > 2: ratio 1.55, 1.35 to 1.78')
    """
    left, right = aligned(left, right)
    words = f"{shown(left)} {sign} {shown(right)}"
    ratios = all(0 < number < math.inf for number in (*left.values(), *right.values()))
    gap = mean_gap(_log_ratio if ratios else _minus, left, right, exact)
    if isinstance(gap, str):
        return Judgement(UNTOLD, f"{words}: {gap}")
    if gap.half and ratios:
        low, middle, high = (math.exp(gap.mean + side * gap.half) for side in (-1, 0, 1))
        words += f": ratio {middle:.3g}, {low:.3g} to {high:.3g}"
    elif gap.half:
        words += f": difference {gap.mean:.3g} ± {gap.half:.2g}"
    met = gap.mean < 0 if sign[0] == "<" else gap.mean > 0
    return Judgement(HOLDS if met or (gap.mean == 0 and len(sign) == 2) else FAILS, words, _beyond(gap, 0.0))


def _beyond(gap: Estimate, bound: float) -> float | None:
    """Twice the tail of Student's t beyond the distance of a mean from a bound; None where no seed differs."""
    from scipy.special import stdtr

    if not gap.half:
        return None
    error = gap.half / t_quantile(gap.n - 1)
    return 2 * float(stdtr(gap.n - 1, -abs(gap.mean - bound) / error))


def all_of(every: Sequence[Judgement]) -> Judgement:
    """Whether all of several hold: p is the largest of theirs; of those that fail the smallest, times their number.

    What one of them lacks hides no failure.

    >>> both = all_of([Judgement(HOLDS, "a", 0.01), Judgement(HOLDS, "b", 0.04)])
    >>> both.lean, both.reason, both.p
    ('holds', 'a; b', 0.04)
    >>> one = all_of([Judgement(FAILS, "a", 0.01), Judgement(HOLDS, "b")])
    >>> one.lean, one.reason, one.p
    ('fails', 'a', 0.02)
    """
    parts = tuple(part for judgement in every for part in judgement.parts or (judgement,))
    left_out, place = merged(every)
    lean = next(kind for kind in (FAILS, UNTOLD, HOLDS) if any(judgement.lean == kind for judgement in parts))
    those = [judgement for judgement in parts if judgement.lean == lean]
    chances = [judgement.p for judgement in those if judgement.p is not None]
    p = max(chances, default=None) if lean == HOLDS else None
    if lean == FAILS and len(chances) == len(those):
        p = min(1.0, len(parts) * min(chances))
    return Judgement(lean, "; ".join(judgement.numbers for judgement in those), p, left_out, place, parts)


def merged(every: Sequence[Any]) -> tuple[dict[int, str], dict[str, str]]:
    """The seeds that have no say in some, each with the first reason, and the place of all."""
    left_out, place = dict[int, str](), dict[str, str]()
    for item in every:
        left_out, place = {**item.left_out, **left_out}, {**place, **item.place}
    return left_out, place


def silence(left_out: Mapping[int, str]) -> str:
    """Which seeds had no say, as the end of a sentence.

    >>> silence({1: "a", 3: "a"})
    '; without seeds 1, 3, where a has no number'
    """
    words = ""
    for what in dict.fromkeys(left_out.values()):
        seeds = sorted(seed for seed, lacks in left_out.items() if lacks == what)
        words += f"; without seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, where {what} has no number"
    return words


def holm(chances: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for their number (Holm 1979): the smallest of m times m, the next times m - 1, never falling.

    >>> holm([0.04, None, 0.01, 0.03])
    [0.06, None, 0.03, 0.06]
    """
    tested = sorted((p, place) for place, p in enumerate(chances) if p is not None)
    corrected, largest = list(chances), 0.0
    for rank, (p, place) in enumerate(tested):
        corrected[place] = largest = max(largest, min(1.0, (len(tested) - rank) * p))
    return corrected


def mean_gap(function: Callable[[float, float], float], left: Numbers, right: Numbers, exact: bool) -> Estimate | str:
    """The mean of a function of both over the seeds that both have; or why it cannot be told.

    An infinite number is one that was never reached: it lies beyond all that were, and two of them tell nothing.
    """
    differences = each(function, left, right)
    values = np.array([*differences.values()])
    if len(values) < (1 if exact or ALL in differences else FEWEST):
        return f"{len(values)} seed{'s' * (len(values) != 1)}, {FEWEST} needed"
    if np.isnan(values).any():
        return "neither has a number" if ALL in differences else "some seed has neither"
    if np.isinf(values).any() and (values != values[0]).any():
        return "some seeds got there and some did not"
    if np.isinf(values).any() or np.ptp(values) <= ROUNDING * abs(values).max():
        return Estimate(float(values.mean()), None, len(values))
    return estimate(values) or "neither has a number"


def aligned(*numbers: Numbers) -> list[Numbers]:
    """All of them at the seeds that all have.

    >>> aligned({0: 1.0, 1: 2.0}, {1: 3.0, 2: 4.0}, {ALL: 5.0}), aligned({ALL: 1.0}, {ALL: 2.0})
    ([{1: 2.0}, {1: 3.0}, {1: 5.0}], [{-1: 1.0}, {-1: 2.0}])
    """
    by_seed = [of.keys() for of in numbers if ALL not in of]
    seeds = sorted(set[int]().union(*by_seed).intersection(*by_seed)) if by_seed else [ALL]
    return [{seed: of[ALL if ALL in of else seed] for seed in seeds} for of in numbers]


def each(function: Callable[..., float], *numbers: Numbers) -> Numbers:
    """A function of values, seed by seed over the seeds that all of them have.

    >>> each(lambda a, b: a - b, {0: 3.0, 1: 4.0}, {1: 1.0, 2: 0.0}), each(lambda a: 2 * a, {ALL: 3.0})
    ({1: 3.0}, {-1: 6.0})
    """
    same = aligned(*numbers)
    return {seed: function(*(of[seed] for of in same)) for seed in same[0]}


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
        result = function(*numbers)
    except (ArithmeticError, ValueError):
        return math.nan
    if isinstance(result, complex):
        return math.nan
    return result if result in numbers or not any(map(math.isinf, numbers)) else math.nan


def shown(numbers: Mapping[int, float]) -> str:
    """A number, or the mean over seeds with half its interval; infinite is what diverged, or never got there.

    >>> shown({ALL: 0.123456}), shown({0: 1.0, 1: 1.0}), shown({0: math.inf, 1: math.inf}), shown({})
    ('0.123456', '1', 'never', '–')
    >>> shown({0: -math.inf, 1: -math.inf}), shown({0: 1.0, 1: math.inf})
    ('diverged', '1 of 2 seeds got there')
    """
    values = np.array([*numbers.values()])
    if np.isinf(values).any():
        reached = int(np.isfinite(values).sum())
        if reached:
            return f"{reached} of {len(values)} seeds got there"
        return "never" if values[0] > 0 else "diverged"
    mean = estimate(values)
    return f"{mean.mean:.6g}{f' ± {mean.half:.2g}' if mean.half else ''}" if mean else "–"


def over_seeds(values: Mapping[int, float], runs: int) -> str:
    """A mean with its interval, and of how many seeds where some have no such number.

    >>> over_seeds({0: 1.0, 2: 1.0}, 3), over_seeds({0: 1.0, 1: 1.0}, 2), over_seeds({}, 3)
    ('1 (2 of 3 seeds)', '1', '–')
    """
    words = shown(values)
    return words if len(values) in (0, runs) else f"{words} ({len(values)} of {runs} seeds)"


def _minus(left: float, right: float) -> float:
    """Zero where they differ by rounding; NaN where both are infinite."""
    if math.isinf(left) and math.isinf(right):
        return math.nan
    return 0.0 if math.isclose(left, right, rel_tol=ROUNDING) else left - right


def _log_ratio(left: float, right: float) -> float:
    """Zero where they differ by rounding."""
    return 0.0 if math.isclose(left, right, rel_tol=ROUNDING) else math.log(left) - math.log(right)
