"""What claims are made of: `r` is the table, `r.at(lr=0.1)` a part of it, `r.dsgd` a variant there.

A quantity of a variant is a value: a number for each seed, with arithmetic and comparisons, which are verdicts.
What was not run, or has no number, is a value too: it carries its reason through arithmetic to the verdict.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise, product
from typing import Any

from commeff.experiments.catalogue.constants import PARTS
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.reproduce.cases import check_label, check_place, check_variant, values_in
from commeff.experiments.reproduce.constants import CaseView, PartConstants
from commeff.experiments.reproduce.reading import TableError
from commeff.experiments.reproduce.results import CaseResult, Observation, Results, check_metric
from commeff.experiments.reproduce.verdicts import (
    ALL,
    FAILS,
    HOLDS,
    UNTOLD,
    Judgement,
    Numbers,
    aligned,
    all_of,
    each,
    measured,
    merged,
    near,
    related,
)

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


Operator = Callable[[Any, object], Any]  # a method


def _operators(sign: str) -> tuple[Operator, Operator]:
    """The methods of a sign: with the object on its left, and on its right."""
    return lambda self, other: self._with(sign, self, other), lambda self, other: self._with(sign, other, self)


class Arithmetic:
    """Signs between what is not yet a number: a class says by `_with` what a sign between two makes."""

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __truediv__, __rtruediv__ = _operators("/")
    __pow__, __rpow__ = _operators("**")

    def _with(self, sign: str, left: object, right: object) -> Any:
        raise NotImplementedError


def _comparison(sign: str) -> Operator:
    return lambda left, right: _related(left, sign, right)


@dataclass(frozen=True, eq=False)
class Value(Arithmetic):
    """A number for each seed, or one for all.

    Attributes
    ----------
    numbers : by seed, or one of ALL; seeds without a number are left out.
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
    __lt__, __le__ = _comparison("<"), _comparison("<=")
    __gt__, __ge__ = _comparison(">"), _comparison(">=")

    def _with(self, sign: str, left: object, right: object) -> Value:
        return apply(SIGNS[sign], left, right)

    def __neg__(self) -> Value:
        return apply(operator.neg, self)

    def __abs__(self) -> Value:
        return apply(abs, self)

    def __bool__(self) -> bool:
        raise TableError("a measured value is neither true nor false: compare it, such as a < 1e-6")


def value(of: object) -> Value:
    """A number as a value that all seeds share."""
    if isinstance(of, Value):
        return of
    if isinstance(of, bool) or not isinstance(of, (int, float)):
        raise TableError(f"a claim compares numbers and quantities of variants, such as floor(...)(r.name), got {of!r}")
    return Value({ALL: float(of)})


def apply(function: Callable[..., Any], *values: object) -> Value:
    """A function of values, seed by seed over the seeds that all of them have: apply(min, a, b), apply(math.log, a).

    Where the numbers of a seed have none, as 1 / 0, that seed tells nothing.
    """
    every = [value(of) for of in values]
    measure = function if all(ALL in of.numbers for of in every) else partial(measured, function)
    numbers = each(lambda *of: float(measure(*of)), *(of.numbers for of in every))
    absent = next((of.absent for of in every if of.absent), "")
    return Value(numbers, *merged(every), any(of.exact for of in every), absent)


def _judged(left: object, right: object, judge: Callable[[Numbers, Numbers, bool], Judgement]) -> Judgement:
    """A comparison over the seeds that both have; the others have no say."""
    left_value, right_value = both = value(left), value(right)
    silent, place = merged(both)
    if absent := left_value.absent or right_value.absent:
        return Judgement(UNTOLD, absent, place=place)
    one, two = left_value.numbers, right_value.numbers
    if ALL not in one | two:
        silent = {**dict.fromkeys(sorted(one.keys() ^ two.keys()), "one of the two"), **silent}
    if any(math.isnan(of.get(ALL, 0.0)) for of in (one, two)):
        judgement = Judgement(UNTOLD, "what is compared has no number")
    else:
        judgement = judge(one, two, left_value.exact or right_value.exact)
    return replace(judgement, left_out=silent, place=place)


def _related(left: object, sign: str, right: object) -> Judgement:
    return _judged(left, right, lambda one, two, exact: related(one, sign, two, exact))


def order(*values: object) -> Judgement:
    """Whether each is below the next."""
    if len(values) < 2:
        raise TableError(f"order takes two values or more, got {len(values)}")
    return all_of([_related(a, "<", b) for a, b in pairwise(values)])


def within(left: object, right: object, by: float | None = None, share: float | None = None) -> Judgement:
    """Whether they differ by at most `by`, or by a share of the second, their interval included."""
    limit = share if by is None else by
    if limit is None or (by is not None and share is not None):
        raise TableError("within takes how far apart is near: by=0.5, or share=0.1 of the second")
    if not 0 <= limit < math.inf:
        raise TableError(f"how far apart is near must be at least 0 and finite, got {limit:g}")

    def judge(numbers: Numbers, reference: Numbers, exact: bool) -> Judgement:
        of_both = aligned(reference, numbers)[0].values()
        size = abs(sum(of_both) / len(of_both)) if share is not None and of_both else 1.0
        return near(numbers, reference, limit * size if math.isfinite(size) else 0.0, exact)  # what diverged is far

    return _judged(left, right, judge)


def equal(left: TableVariant, right: TableVariant, metric: str | None = None) -> Judgement:
    """Whether all recorded numbers of two variants, or one metric at the end, are the same to the last bit."""
    if metric is not None:
        check_metric(left.results.table, metric)
    for variant in (left, right):
        if not variant.runs:
            return Judgement(UNTOLD, variant.absent().absent, place=variant.place)
    seeds = sorted(left.runs.keys() & right.runs.keys())
    differing = [seed for seed in seeds if not left.runs[seed].same(right.runs[seed], metric)]
    what = metric or "all recorded numbers"
    if differing:
        return Judgement(FAILS, f"{what} differ for seed {differing[0]}", place=left.place)
    if not seeds:
        return Judgement(UNTOLD, "no seed was run with both", place=left.place)
    reason = f"{what} are equal bit for bit over {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    return Judgement(HOLDS, reason, place=left.place)


@dataclass(frozen=True, eq=False)
class TablePlace:
    """The results of a table at some labels, all of them unless `where` says.

    A variant is an attribute, r.dsgd, or an item, r["one peer"].
    """

    results: Results
    where: Mapping[str, str] = field(default_factory=dict)

    def at(self, **labels: Any) -> TablePlace:
        """The cases with these labels, by the end of their keys: r.at(lr=0.1)."""
        for key in labels:
            check_label(self.results.table.full_cases, key)
        return TablePlace(self.results, {**self.where, **{key: text(value) for key, value in labels.items()}})

    def each(self, *labels: str, of: str = "") -> Iterator[TablePlace]:
        """One place after the other: the combinations of these labels that a variant has, or that any variant has.

        Where this scale has none of them, the place itself.
        """
        for key in labels:
            check_label(self.results.table.full_cases, key)
        cases = [places.case for places in self.results.cases if places.case.has(self.where)]
        if of:
            check_variant(self.results.table.full_cases, of)
            cases = [case for case in cases if case.name == of]
        combinations = product(*(values_in(cases, key) for key in labels))
        places = [{**self.where, **dict(zip(labels, values, strict=True))} for values in combinations]
        present = [where for where in places if any(case.has(where) for case in cases)]
        yield from (TablePlace(self.results, where) for where in present or [dict(self.where)])

    def __getitem__(self, name: str) -> TableVariant:
        return TableVariant(self.results, name, self.where)

    def __getattr__(self, name: str) -> TableVariant:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


@dataclass(frozen=True, eq=False)
class TableVariant:
    """A variant at a place. A function of the case takes it, and so does a quantity.

    Called, it is the case with further labels: r.eden(bits=4).
    """

    results: Results
    name: str
    place: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_place(self.results.table.full_cases, self.name, self.where)

    @property
    def where(self) -> dict[str, str]:
        """All labels by which its cases are picked."""
        return {**self.place, **self.labels}

    def __call__(self, **labels: Any) -> TableVariant:
        values = {key: text(value) for key, value in labels.items()}
        return TableVariant(self.results, self.name, self.place, {**self.labels, **values})

    @cached_property
    def result(self) -> CaseResult | None:
        """Its only case; None where this scale leaves it out."""
        return self.results.one(self.name, self.where)

    @property
    def runs(self) -> Mapping[int, Observation]:
        """What its runs measured, by seed; nothing where it was not run."""
        return self.result.runs if self.result else {}

    def absent(self) -> Value:
        """The value of every quantity of it where it was not run."""
        return Value({}, {}, self.place, absent=f"{self.name} was not run at this scale")

    @cached_property
    def _case(self) -> CaseView:
        table = self.results.table
        if self.result is not None:
            return CaseView(table, self.result.case)
        fits = [case for case in table.full_cases if case.name == self.name and case.has(self.where)]
        return CaseView(table, fits[0], parts="none")

    def __getitem__(self, key: str) -> Any:
        return self._case[key]

    def __getattr__(self, part: str) -> PartConstants:
        """The value as that of a case."""
        return getattr(self._case, part) if part in PARTS else self.__getattribute__(part)
