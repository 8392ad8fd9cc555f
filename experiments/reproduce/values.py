"""Values of claims: a number for each seed, arithmetic with them, and comparisons, which are verdicts.

What was not run, or has no number, is a value too: it carries its reason through arithmetic to the verdict.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from commeff.experiments.reproduce import verdicts
from commeff.experiments.reproduce.arithmetic import SIGNS, Arithmetic
from commeff.experiments.reproduce.faults import TableError
from commeff.experiments.reproduce.quantities import measured
from commeff.experiments.reproduce.verdicts import FAILS, HOLDS, UNTOLD, Numbers, Told, shared

if TYPE_CHECKING:
    from commeff.experiments.reproduce.places import TableVariant


@dataclass(frozen=True, eq=False)
class TableVerdict:
    """What a comparison comes to.

    Attributes
    ----------
    told : what the means say, the numbers and the p-value.
    left_out : the seeds that had no say, and what has no number there.
    place : the labels at which it is judged.
    parts : the comparisons of which all must hold, if it is of several.
    """

    told: Told
    left_out: Mapping[int, str] = field(default_factory=dict)
    place: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[Told, ...] = ()

    def __and__(self, other: object) -> TableVerdict:
        """Both: the worse of the two, with the reasons of those that are so."""
        if not isinstance(other, TableVerdict):
            return NotImplemented
        return all_of(self, other)

    def __bool__(self) -> bool:
        raise TableError(
            "a comparison of measured values may not be told, so it is neither true nor false: write "
            "(a < b) & (b < c) for a < b < c and `and`, and apply(min, a, b) for min(a, b)"
        )

    @property
    def words(self) -> str:
        """The reason, and which seeds had no say."""
        silent = []
        for what in dict.fromkeys(self.left_out.values()):
            seeds = sorted(seed for seed, lacks in self.left_out.items() if lacks == what)
            number = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
            silent.append(f"without {number}, where {what} has no number")
        return "; ".join([self.told.reason, *silent])


@dataclass(frozen=True, eq=False)
class Value(Arithmetic):
    """A number for each seed, or one for all.

    Attributes
    ----------
    numbers : by seed; seeds without a number are left out.
    left_out : those seeds, and what has no number there.
    place : the labels at which it was asked for.
    exact : whether no seed changes what was measured.
    absent : why there is no number at all; empty where there is one.
    """

    numbers: Numbers
    left_out: Mapping[int, str] = field(default_factory=dict)
    place: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False
    absent: str = ""
    __array_ufunc__ = None  # numbers of numpy leave the arithmetic to this

    def _with(self, sign: str, left: object, right: object) -> Value:
        return apply(SIGNS[sign], left, right)

    def __neg__(self) -> Value:
        return apply(operator.neg, self)

    def __abs__(self) -> Value:
        return apply(abs, self)

    def __lt__(self, other: object) -> TableVerdict:
        return _related(self, "<", other)

    def __le__(self, other: object) -> TableVerdict:
        return _related(self, "<=", other)

    def __gt__(self, other: object) -> TableVerdict:
        return _related(self, ">", other)

    def __ge__(self, other: object) -> TableVerdict:
        return _related(self, ">=", other)

    def __bool__(self) -> bool:
        raise TableError("a measured value is neither true nor false: compare it, such as a < 1e-6")


def value(of: object) -> Value:
    """A number as a value that all seeds share."""
    if isinstance(of, Value):
        return of
    if isinstance(of, bool) or not isinstance(of, (int, float)):
        raise TableError(f"a claim compares numbers and quantities of variants, such as floor(...)(r.name), got {of!r}")
    return Value(float(of))


def apply(function: Callable[..., Any], *values: object) -> Value:
    """A function of values, seed by seed over the seeds that all of them have: apply(min, a, b), apply(math.log, a).

    Where the numbers of a seed have none, as 1 / 0, that seed tells nothing.
    """
    every = [value(each) for each in values]
    return Value(_seed_by_seed(function, every), **_both(every), absent=next((e.absent for e in every if e.absent), ""))


def _seed_by_seed(function: Callable[..., Any], every: list[Value]) -> Numbers:
    seeds = [each.numbers.keys() for each in every if isinstance(each.numbers, dict)]
    if not seeds:
        return float(function(*(each.numbers for each in every)))
    return {
        seed: measured(function, *(e.numbers[seed] if isinstance(e.numbers, dict) else e.numbers for e in every))
        for seed in sorted(reduce(operator.and_, seeds))
    }


def _merged(every: Sequence[Value | TableVerdict]) -> dict[str, Any]:
    """The seeds that have no say, each with the first reason, and the place of all."""
    left_out, place = dict[int, str](), dict[str, str]()
    for each in every:
        left_out, place = {**each.left_out, **left_out}, {**place, **each.place}
    return {"left_out": left_out, "place": place}


def _both(every: list[Value]) -> dict[str, Any]:
    """What values say beside their numbers."""
    return {**_merged(every), "exact": any(each.exact for each in every)}


def _judged(left: object, right: object, judge: Callable[[Numbers, Numbers, bool], Told]) -> TableVerdict:
    """A comparison over the seeds that both have; the others have no say."""
    ours, theirs = value(left), value(right)
    both = _both([ours, theirs])
    if absent := ours.absent or theirs.absent:
        return TableVerdict(Told(UNTOLD, absent), {}, both["place"])
    one, two, silent = ours.numbers, theirs.numbers, both["left_out"]
    if isinstance(one, dict) and isinstance(two, dict):
        silent = {**dict.fromkeys(sorted(one.keys() ^ two.keys()), "one of the two"), **silent}
    if any(isinstance(each, float) and math.isnan(each) for each in (one, two)):
        return TableVerdict(Told(UNTOLD, "what is compared has no number"), silent, both["place"])
    return TableVerdict(judge(*shared(one, two), both["exact"]), silent, both["place"])


def _related(left: object, sign: str, right: object) -> TableVerdict:
    return _judged(left, right, lambda ours, theirs, exact: verdicts.related(ours, sign, theirs, exact))


def order(*values: object) -> TableVerdict:
    """Whether each is below the next."""
    if len(values) < 2:
        raise TableError(f"order takes two values or more, got {len(values)}")
    return all_of(*(_related(a, "<", b) for a, b in pairwise(values)))


def within(left: object, right: object, by: float | None = None, share: float | None = None) -> TableVerdict:
    """Whether they differ by at most `by`, or by a share of the second, their interval included."""
    given = share if by is None else by
    if given is None or (by is not None and share is not None):
        raise TableError("within takes how far apart is near: by=0.5, or share=0.1 of the second")
    if not 0 <= given < math.inf:
        raise TableError(f"how far apart is near must be at least 0 and finite, got {given:g}")

    def judge(ours: Numbers, theirs: Numbers, exact: bool) -> Told:
        return verdicts.near(ours, theirs, given if share is None else given * _size(theirs), exact)

    return _judged(left, right, judge)


def equal(left: TableVariant, right: TableVariant, metric: str | None = None) -> TableVerdict:
    """Whether all recorded numbers of two variants, or one metric at the end, are the same to the last bit."""
    if metric is not None:
        left.results.table.check_metric(metric)
    one, two = left.result, right.result
    for variant, result in ((left, one), (right, two)):
        if result is None or not result.seen:
            return TableVerdict(Told(UNTOLD, variant.absent().absent), {}, variant.place)
    assert one is not None
    assert two is not None
    seeds = sorted(one.seen.keys() & two.seen.keys())
    if not seeds:
        return TableVerdict(Told(UNTOLD, "no seed was run with both"), {}, left.place)
    differing = [seed for seed in seeds if not one.same(two, seed, metric)]
    what = metric or "all recorded numbers"
    if differing:
        return TableVerdict(Told(FAILS, f"{what} differ for seed {differing[0]}"), {}, left.place)
    reason = f"{what} are equal bit for bit over {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    return TableVerdict(Told(HOLDS, reason), {}, left.place)


def all_of(*every: TableVerdict) -> TableVerdict:
    """Whether all of several hold, with the reasons of the worst: what one of them lacks hides no failure."""
    parts = tuple(part for each in every for part in each.parts or (each.told,))
    return TableVerdict(verdicts.all_of(parts), **_merged(every), parts=parts)


def _size(of: Numbers) -> float:
    """|mean|; 0 where a run diverged or never got there, which is near nothing."""
    size = abs(verdicts.mean(of))
    return size if math.isfinite(size) else 0.0
