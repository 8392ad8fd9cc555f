"""Claims and printed numbers judged: what a table says of the results, and what is wrong with it before there are any.

Of a printed number ours is a mean over seeds: it is within the tolerance, or off, if its 95 % interval is. A seed that
diverged puts it off; where a seed has no such number, or the case was not run, nothing is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.contained import contained
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.reproduce.cases import SCALES, Case, check_place
from commeff.experiments.reproduce.constants import CaseView, number_of
from commeff.experiments.reproduce.quantities import TableQuantity, quantity
from commeff.experiments.reproduce.reading import TableError, check_one_of
from commeff.experiments.reproduce.results import CaseResult, Results, check_derived
from commeff.experiments.reproduce.tuning import chosen
from commeff.experiments.reproduce.values import TablePlace
from commeff.experiments.reproduce.verdicts import ALL, FAILS, HOLDS, UNTOLD, Judgement, holm, near

if TYPE_CHECKING:
    from commeff.experiments.reproduce.table import PublishedTable

PAPER, THEORY, US = WHOSE = ("paper", "theory", "us")
TOLERANCES = ("absolute", "relative")
OK, OFF, NOT_COMPARABLE = "ok", "off", "not comparable"
WORDS = {HOLDS: OK, FAILS: OFF, UNTOLD: UNTOLD}


@dataclass(frozen=True)
class Claim:
    """What a table claims.

    Parameters
    ----------
    verdict : a comparison, such as gap(r.d2) < gap(r.dsgd).
    text : the claim in a sentence.
    source : the section, theorem, table or figure that says so.
    because : why it fails, once that is known.
    scale : the smallest at which it is judged.
    of : "paper" claims it; or "theory" does, a bound or an identity that nothing but a bug can break; or "us".
    """

    verdict: Judgement
    text: str
    source: str = ""
    because: str = ""
    scale: str = "reduced"
    of: str = PAPER

    def __post_init__(self) -> None:
        if not isinstance(self.verdict, Judgement):
            got = f"got {self.verdict!r}"
            raise TableError(f"a claim compares measured values, such as a < b or within(a, b, 0.1), {got}")
        check_one_of(WHOSE, of=self.of)
        check_one_of(SCALES, scale=self.scale)


claim = Claim  # as a table calls it


def judge(results: Results) -> list[Claim]:
    """All claims of a table with their verdicts; those of one sentence stand together.

    p-values are corrected by Holm's method over the page: for the number of claims that chance has a part in. Checked
    theory, which is no discovery, is left out of that.
    """
    every = [*_claims(results)]
    corrected = holm([one.verdict.p if one.of != THEORY else None for one in every])
    judged = [
        one if one.of == THEORY else replace(one, verdict=replace(one.verdict, p=p))
        for one, p in zip(every, corrected, strict=True)
    ]
    first = [*dict.fromkeys(one.text for one in judged)]
    return sorted(judged, key=lambda one: first.index(one.text))


def _claims(results: Results) -> Iterator[Claim]:
    """The claims of a table; those of a later scale have no verdict yet."""
    if results.table.claims is None:
        return
    with contained():
        for one in results.table.claims(TablePlace(results)):
            if not isinstance(one, Claim):
                raise TableError(f"claims must yield claim(...), got {one!r}")
            early = SCALES.index(results.table.scale) < SCALES.index(one.scale)
            later = Judgement(UNTOLD, f"judged from scale {one.scale} on", place=one.verdict.place)
            yield replace(one, verdict=later) if early else one


@dataclass(frozen=True)
class PrintedNumber:
    """A number of the paper, or of a theorem, beside ours.

    Parameters
    ----------
    variant : of the grid.
    of : a metric or a quantity.
    value : theirs, or a function of the case.
    source : where it is printed.
    where : labels of the cases that it is of.
    spread : as printed behind ±.
    scale : the smallest at which it is compared.
    because : why ours is off, once that is known.
    """

    variant: str
    of: TableQuantity
    value: float | Callable[[Any], Any]
    source: str
    where: Mapping[str, str] = field(default_factory=dict)
    spread: float | None = None
    scale: str = "full"
    because: str = ""

    def __post_init__(self) -> None:
        if not callable(self.value) and not math.isfinite(number_of(self.value, "a printed number")):
            raise TableError(f"a printed number must be finite, got {self.value}")
        if self.spread is not None and not 0 <= number_of(self.spread, "spread") < math.inf:
            raise TableError(f"spread must be a number, as printed behind ±, got {self.spread!r}")
        check_one_of(SCALES, scale=self.scale)
        object.__setattr__(self, "of", quantity(self.of))
        object.__setattr__(self, "where", {key: text(label) for key, label in (self.where or {}).items()})

    def worked_out(self, table: PublishedTable, case: Case) -> float:
        """Its value for a case."""
        value = self.value(CaseView(table, case)) if callable(self.value) else self.value
        return number_of(value, "a printed number")


printed = PrintedNumber  # as a table calls it


@dataclass(frozen=True)
class Tolerance:
    """How near ours must be: within `by`, or within a share `by` of theirs."""

    kind: str = "relative"
    by: float = 0.05

    def __post_init__(self) -> None:
        check_one_of(TOLERANCES, **{"tolerance.kind": self.kind})
        most = 1.0 if self.kind == "relative" else math.inf
        if isinstance(self.by, str) or not 0 <= self.by <= most or math.isinf(self.by):
            limit = "between 0 and 1, a share of theirs," if self.kind == "relative" else "at least 0 and finite"
            raise TableError(f"tolerance.by must be {limit} where it is {self.kind}, got {self.by!r}")


@dataclass(frozen=True)
class Comparison:
    """A published number and what the `runs` of one case measured, by seed; `where` are the labels of the case."""

    printed: PrintedNumber
    where: Mapping[str, str]
    published: float
    measured: Mapping[int, float]
    verdict: str
    runs: int = 0

    @property
    def difference(self) -> float:
        """Our mean minus the published number; NaN where there is none, infinite where a run diverged."""
        mean = math.fsum(self.measured.values()) / len(self.measured) if self.measured else math.nan
        return mean - self.published


def compare(results: Results) -> list[Comparison]:
    """All printed numbers of a table, each with every case that it speaks of."""
    table, comparisons = results.table, list[Comparison]()
    for printed in table.numbers:
        cases = results.named(printed.variant, printed.where)
        comparisons += [_compared(printed, result, results) for result in cases]
        if not cases:
            printed_value = math.nan if callable(printed.value) else float(printed.value)
            comparisons.append(Comparison(printed, dict(printed.where), printed_value, {}, NOT_COMPARABLE))
    return comparisons


def _compared(printed: PrintedNumber, result: CaseResult, results: Results) -> Comparison:
    table, runs = results.table, result.runs
    values, printed_value = printed.of.by_seed(results, result), printed.worked_out(table, result.case)
    enough = SCALES.index(table.scale) >= SCALES.index(printed.scale)
    of_any_data = printed.scale != SCALES[-1]  # bytes, for example
    fit = enough and (of_any_data or all(run.comparable for run in runs.values()))
    outcome = NOT_COMPARABLE
    if fit and values and values.keys() == runs.keys():
        outcome = verdict(table.tolerance, printed_value, values, of_any_data or table.exact)
    return Comparison(printed, result.labels, printed_value, values, outcome, len(runs))


def verdict(tolerance: Tolerance, printed: float, values: Mapping[int, float], exact: bool = False) -> str:
    """The verdict on a printed number and our values; `exact`: no seed changes them.

    >>> tenth = Tolerance("relative", 0.1)
    >>> verdict(tenth, -2.0, {0: -2.1, 1: -2.1, 2: -2.1}), verdict(tenth, 2.0, {0: 2.1, 1: 2.1, 2: math.inf})
    ('ok', 'off')
    >>> verdict(tenth, 2.0, {0: 1.5, 1: 2.5, 2: 2.0}), verdict(tenth, 2.0, {0: 2.0})
    ('inconclusive', 'inconclusive')
    """
    if any(map(math.isinf, values.values())):
        return OFF
    by = tolerance.by * abs(printed) if tolerance.kind == "relative" else tolerance.by
    return WORDS[near(dict(values), {ALL: printed}, by, exact).state]


def rehearse(table: PublishedTable) -> None:
    """Go through all that a table says once without results: names that nothing has and errors of its code are told.

    Raises
    ------
    TableError : or whatever the table's own code raises.
    """
    results = chosen(Results(table, [CaseResult(case, {}, {}) for case in table.cases]))
    tuned = [table.tune.by] if table.tune else []
    for of in (*table.show, *(printed.of for printed in table.numbers), *table.drawn, *tuned):
        table.check_quantity(of)
    check_derived(table)
    for number, printed in enumerate(table.numbers, 1):
        check_place(table.full_cases, printed.variant, printed.where, f"numbers: entry {number}: ")
    judge(results)
    for result in results.cases:
        for of in (*table.show, *table.drawn):
            if not of.metrics:
                of.number(results, result, table.seeds[0])
    for printed in table.numbers:
        values = [printed.worked_out(table, result.case) for result in results.named(printed.variant, printed.where)]
        if table.tolerance.kind == "relative" and table.tolerance.by > 0 and 0 in values:
            raise TableError(
                f"numbers: a share of a printed 0 is 0, got a tolerance of {table.tolerance.by:.4g} relative; give an "
                "absolute one, or make it a claim, such as within(a, 0, 0.1)"
            )
