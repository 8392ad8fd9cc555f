"""A claim judged at one place: its tree worked out, on numbers of each seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np

from commeff.experiments.published.reproduce.beside import of_case, onsets
from commeff.experiments.published.reproduce.constants import constant
from commeff.experiments.published.reproduce.formulas import CONSTANTS, FUNCTIONS, apply, combine, transformed
from commeff.experiments.published.reproduce.grammar import QUANTITIES
from commeff.experiments.published.reproduce.language import Call, Expression, LanguageError, Literal, Name, walk
from commeff.experiments.published.reproduce.quantities import measured, quantity, slope
from commeff.experiments.published.reproduce.results import CaseResult, Results
from commeff.experiments.published.reproduce.statements import Claim
from commeff.experiments.published.reproduce.verdicts import (
    FAILS,
    HOLDS,
    UNTOLD,
    Value,
    Verdict,
    all_of,
    beyond,
    each,
    mean,
    near,
    related,
    shared,
)

EXACTLY = 1e-9  # relative: = without ±


class AbsentError(Exception):
    """What a claim names was not run at this scale, or has no such number."""


class Judgement:
    """One claim at one place."""

    def __init__(self, claim: Claim, where: Mapping[str, str], results: Results) -> None:
        self.claim, self.where, self.results = claim, where, results
        self.exact = results.table.exact
        self.left_out: dict[int, str] = {}  # the seeds that have no say, and what has no number there
        self.names = [*dict.fromkeys(case.name for case in results.table.full_cases)]

    def check_constants(self, names: Sequence[Name]) -> None:
        """Refuse those names that are neither variants nor numbers of the first variant's case."""
        for name in names:
            if name.text not in (*self.names, "others", *CONSTANTS):
                with suppress(AbsentError):
                    self._constant(name)

    def verdict(self) -> Verdict:
        """Verdict and reason, with the seeds that had no say."""
        verdict, reason = self._judged()
        return verdict, "; ".join([reason, *self._silent()])

    def _judged(self) -> Verdict:
        tree = self.claim.tree
        if tree.relation is not None and tree.right is not None:
            margin = self._margin(tree.margin) if tree.margin is not None else None
            return self._relation(tree.left, tree.relation, tree.right, margin)
        assert isinstance(tree.left, Call)
        return self._call(tree.left)

    def _call(self, call: Call) -> Verdict:
        sigmas = self._number(call.named["sigmas"]) if "sigmas" in call.named else None
        if call.function == "order":
            return all_of([self._told(self._beyond, a, b, sigmas) for a, b in pairwise(call.arguments)])
        first, second = call.arguments[:2]
        others = self._others(first, second)
        if call.function == "below":
            return all_of([self._told(self._beyond, first, other, sigmas) for other in others])
        if call.function == "above":
            return all_of([self._told(self._beyond, other, first, sigmas) for other in others])
        if call.function == "within":
            return all_of([self._told(self._within, first, other, call.arguments[2]) for other in others])
        metric = call.arguments[2] if len(call.arguments) == 3 else Name(self.claim.of)
        assert isinstance(metric, Name)
        return all_of([self._told(self._equal, first, other, metric.text) for other in others])

    def _told(self, judge: Callable[..., Verdict], *arguments: Any) -> Verdict:
        """A verdict on one pair of several: what the others say counts, whatever one of them lacks."""
        try:
            return judge(*arguments)
        except AbsentError as absent:
            return UNTOLD, str(absent)

    def _others(self, first: Expression, second: Expression) -> list[Expression]:
        """The second argument, or where it is `others` all variants but the first."""
        if not (isinstance(second, Name) and second.text == "others" and "others" not in self.names):
            return [second]
        own = {part.text for part in walk(first) if isinstance(part, Name)}
        names = [name for name in self.names if name not in own and self.results.named(name, self.where)]
        if not names:
            raise AbsentError("this scale has no others")
        if isinstance(first, Call):
            return [Call(first.function, (Name(name), *first.arguments[1:]), first.named) for name in names]
        return [Name(name) for name in names]

    def _beyond(self, low: Expression, high: Expression, sigmas: float | None) -> Verdict:
        """By so many standard errors, or where the claim does not say by the 95 % interval, as of <."""
        ours, theirs = self._pair(low, high)
        if sigmas is None:
            return related(ours, "<", theirs, self.exact)
        return beyond(ours, theirs, sigmas, self.exact)

    def _within(self, first: Expression, second: Expression, tolerance: Expression) -> Verdict:
        left, right = self._pair(first, second)
        by = self._number(tolerance)
        if isinstance(tolerance, Literal) and tolerance.percent:
            by *= _size(right)
        return near(left, right, by, self.exact)

    def _relation(self, left: Expression, sign: str, right: Expression, margin: float | None) -> Verdict:
        ours, theirs = self._pair(left, right)
        if sign != "=":
            return related(ours, sign, theirs, self.exact)
        return near(ours, theirs, EXACTLY * max(_size(ours), _size(theirs)) if margin is None else margin, self.exact)

    def _pair(self, left: Expression, right: Expression) -> tuple[Value, Value]:
        """Both values over the seeds that both have; the others have no say."""
        ours, theirs = self._value(left), self._value(right)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            self._leave_out(ours.keys() ^ theirs.keys(), "one of the two")
        return shared(ours, theirs)

    def _equal(self, first: Expression, second: Expression, metric: str) -> Verdict:
        """Bit for bit the same: all numbers of all evaluations, or one metric at the end."""
        pairs = [self._result(part) for part in (first, second)]
        shared = sorted(pairs[0].seen.keys() & pairs[1].seen.keys())
        if not shared:
            raise AbsentError("no seed was run with both")
        differing = [seed for seed in shared if not pairs[0].same(pairs[1], seed, metric)]
        what = "all recorded numbers" if metric == "bits" else metric
        if differing:
            return FAILS, f"{what} differ for seed {differing[0]}"
        return HOLDS, f"{what} are equal bit for bit over {len(shared)} seed{'s' * (len(shared) > 1)}"

    def _result(self, tree: Expression) -> CaseResult:
        if not isinstance(tree, Name):
            raise LanguageError(f"{self.claim.text!r}: a variant must stand in equal and onset")
        found = self.results.one(tree.text, {**self.where, **dict(tree.where)})
        if found is None or not found.seen:
            raise AbsentError(f"{tree.text} was not run at this scale")
        return found

    def _value(self, tree: Expression) -> Value:
        """A number, or one of each seed."""
        if isinstance(tree, Literal):
            return tree.value / 100 if tree.percent else tree.value
        if isinstance(tree, Name):
            if tree.text in self.names:
                return self._of_seeds(tree, lambda result: result.values(lambda seen: seen.final(self.claim.of)))
            return CONSTANTS[tree.text] if tree.text in CONSTANTS else self._constant(tree)
        if isinstance(tree, Call):
            return self._called(tree)
        return self._applied(partial(combine, tree.sign), self._value(tree.left), self._value(tree.right))

    def _called(self, call: Call) -> Value:
        if call.function == "slope":
            return self._slope(call)
        if call.function == "onset":
            return self._onset(call)
        first = call.arguments[0]
        if call.function in QUANTITIES and isinstance(first, Name) and first.text in self.names:
            numbers = [self._number(part) for part in call.arguments[1:]]
            metric = self.claim.of
            return self._of_seeds(
                first, lambda r: r.values(lambda seen: quantity(call.function, seen, metric, numbers, call.named))
            )
        if call.function in QUANTITIES and call.function not in FUNCTIONS:
            raise LanguageError(f"{self.claim.text!r}: {call.function} wants a variant, one of {', '.join(self.names)}")
        values = [self._value(part) for part in call.arguments]
        if len(values) == 1:
            return self._applied(lambda a, _: apply(call.function, [a]), values[0], 0.0)
        return reduce(partial(self._applied, lambda a, b: apply(call.function, [a, b])), values)

    @staticmethod
    def _applied(function: Callable[[float, float], float], left: Value, right: Value) -> Value:
        """Of numbers that were measured: NaN of a seed that has none. Of constants alone, a fault of the table."""
        if isinstance(left, dict) or isinstance(right, dict):
            return each(partial(measured, function), left, right)
        return function(left, right)

    def _onset(self, call: Call) -> Value:
        """For each seed that both variants have run: onset(dsgd, psgd, 2)."""
        first, second = map(self._result, call.arguments[:2])
        found = onsets(first, second, self.claim.of, self._number(call.arguments[2]))
        if not found:
            raise AbsentError(f"{first.case.name} and {second.case.name} have no {self.claim.of} at the same steps")
        self._leave_out((first.seen.keys() & second.seen.keys()) - found.keys(), f"onset of {first.case.name}")
        return found

    def _slope(self, call: Call) -> Value:
        """For each seed, of a line through all cases of a variant: slope(log floor(gap), log lr, dsgd)."""
        y, x = call.arguments[:2]
        chosen = call.arguments[2] if len(call.arguments) == 3 else Name(self.where.get("name", ""))
        if not isinstance(chosen, Name):
            raise LanguageError(f"{self.claim.text!r}: the third argument of slope is a variant")
        where = {**self.where, **dict(chosen.where)}
        names = [chosen.text] if chosen.text else self.names
        found = [result for name in names for result in self.results.named(name, where)]
        if len({result.case.name for result in found}) > 1:
            raise LanguageError(f"{self.claim.text!r}: of which variant is the slope? give it as the third argument")
        seeds = set[int]().union(*(result.seen for result in found))
        places = [transformed(x, partial(self._label, result)) for result in found]
        heights = {s: [transformed(y, partial(self._height, result, s)) for result in found] for s in sorted(seeds)}
        for result, column in zip(found, zip(*heights.values(), strict=True), strict=True):
            without = [seed for seed, height in zip(heights, column, strict=True) if not math.isfinite(height)]
            self._leave_out(without, " ".join([result.case.name, *(f"{k}={v}" for k, v in result.labels.items())]))
        whole = {seed: each for seed, each in heights.items() if all(map(math.isfinite, each))}
        slopes = {seed: slope(np.array(places), np.array(each)) for seed, each in whole.items()}
        if not any(map(math.isfinite, slopes.values())):
            raise AbsentError("; ".join(["no seed has a number at every point of a line", *self._silent()]))
        return slopes

    def _height(self, result: CaseResult, seed: int, tree: Expression) -> float:
        return of_case(self.results, result, tree).get(seed, math.nan)

    def _label(self, result: CaseResult, tree: Expression) -> float:
        if not isinstance(tree, Name):
            raise LanguageError(f"{self.claim.text!r}: the second argument of slope is a label, or log of one")
        return constant(self.results.table, result.case, tree.text)

    def _of_seeds(self, tree: Name, measure: Callable[[CaseResult], dict[int, float]]) -> Value:
        result = self.results.one(tree.text, {**self.where, **dict(tree.where)})
        if result is None or not result.seen:
            raise AbsentError(f"{tree.text} was not run at this scale")
        values = measure(result)
        if not values:
            raise AbsentError(f"{tree.text} has no {self.claim.of}")
        self._leave_out(result.seen.keys() - values.keys(), tree.text)
        return values

    def _leave_out(self, seeds: Collection[int], what: str) -> None:
        """The first reason stands."""
        self.left_out = {**dict.fromkeys(seeds, what), **self.left_out}

    def _silent(self) -> Iterator[str]:
        """The seeds that had no say, by what has no number there."""
        for what in dict.fromkeys(self.left_out.values()):
            seeds = sorted(seed for seed, lacks in self.left_out.items() if lacks == what)
            yield f"without seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}, where {what} has no number"

    def _constant(self, tree: Name) -> float:
        """A number of the first variant that the claim names."""
        for part in walk(self.claim.tree):
            if isinstance(part, Name) and part.text in self.names:
                found = self.results.named(part.text, {**self.where, **dict(part.where)})
                if not found:
                    raise AbsentError(f"{part.text} was not run at this scale")
                return constant(self.results.table, found[0].case, tree.text)
        return constant(self.results.table, self.results.cases[0].case, tree.text)

    def _number(self, tree: Expression) -> float:
        value = self._value(tree)
        if isinstance(value, dict):
            raise LanguageError(f"{self.claim.text!r}: a number must stand where a variant is")
        return value

    def _margin(self, tree: Expression) -> float:
        """How far apart is near: also where names say it, whose values no reading of the table knows."""
        if not 0 <= (by := self._number(tree)) < math.inf:
            raise LanguageError(f"{self.claim.text!r}: how far apart is near must be at least 0 and finite, got {by:g}")
        return by


def _size(value: Value) -> float:
    """|mean|; 0 where a run diverged or never got there, which is near nothing."""
    size = abs(mean(value))
    return size if math.isfinite(size) else 0.0
