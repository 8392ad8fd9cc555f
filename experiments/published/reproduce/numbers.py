"""Printed numbers beside ours: the difference, and whether it is within the tolerance of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from commeff.experiments.published.reproduce.beside import of_case
from commeff.experiments.published.reproduce.constants import formula_of
from commeff.experiments.published.reproduce.language import Call, Expression, Literal, Name
from commeff.experiments.published.reproduce.results import Results
from commeff.experiments.published.reproduce.statements import SCALES, PrintedNumber, Tolerance
from commeff.experiments.report.data.statistics import Estimate, estimate

OK, OFF, NOT_COMPARABLE = "ok", "off", "not comparable"


@dataclass(frozen=True)
class Comparison:
    """A printed number and ours for one case; `where` are the labels of the case."""

    printed: PrintedNumber
    where: Mapping[str, str]
    theirs: float
    ours: Estimate | None
    verdict: str

    @property
    def difference(self) -> float:
        """Ours minus theirs."""
        return math.nan if self.ours is None else self.ours.mean - self.theirs


def compare(results: Results) -> list[Comparison]:
    """All printed numbers of a table, each with every case that it speaks of."""
    table, found = results.table, list[Comparison]()
    for printed in table.numbers:
        enough = SCALES.index(table.scale) >= SCALES.index(printed.least_scale)
        for result in results.named(printed.variant, dict(printed.where)):
            values = of_case(results, result, printed.of).values()
            ours, theirs = estimate(values), formula_of(table, result.case, printed.value)
            of_any_data = printed.least_scale != SCALES[-1]  # bytes, for example
            fit = enough and (of_any_data or all(seen.comparable for seen in result.seen.values()))
            verdict = _verdict(table.tolerance, theirs, ours) if ours and fit else NOT_COMPARABLE
            found.append(Comparison(printed, result.labels, theirs, ours, verdict))
    return _ranked(found) if table.tolerance.kind == "rank" else found


def _verdict(tolerance: Tolerance, theirs: float, ours: Estimate) -> str:
    """
    >>> _verdict(Tolerance("relative", 0.1), -2.0, Estimate(-2.1, None, 1))
    'ok'
    """
    by = tolerance.by * abs(theirs) if tolerance.kind == "relative" else tolerance.by
    return OK if abs(ours.mean - theirs) <= by else OFF


def _ranked(found: Sequence[Comparison]) -> list[Comparison]:
    """Ours are as theirs if they come in the same place among all numbers of the same quantity."""
    ranked = []
    for one in found:
        peers = [c for c in found if c.printed.of == one.printed.of and c.verdict != NOT_COMPARABLE and c.ours]
        if one.verdict == NOT_COMPARABLE or one.ours is None:
            ranked.append(one)
            continue
        theirs = sum(c.theirs < one.theirs for c in peers)
        ours = sum(c.ours.mean < one.ours.mean for c in peers if c.ours)
        ranked.append(replace(one, verdict=OK if theirs == ours else OFF))
    return ranked


def in_words(tree: Expression) -> str:
    """A quantity as a table file writes it.

    >>> from commeff.experiments.published.reproduce.language import parse_formula
    >>> in_words(parse_formula("to(gap, 1e-6, of=step)"))
    'to(gap, 1e-06, of=step)'
    """
    if isinstance(tree, Literal):
        return f"{tree.value:g}" + "%" * tree.percent
    if isinstance(tree, Name):
        return tree.text
    if isinstance(tree, Call):
        inside = [*map(in_words, tree.arguments), *(f"{k}={in_words(v)}" for k, v in tree.named.items())]
        return f"{tree.function}({', '.join(inside)})"
    return f"({in_words(tree.left)} {tree.sign} {in_words(tree.right)})"
