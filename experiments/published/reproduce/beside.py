"""Quantities of a case, a number for each seed: of its own runs, beside another variant's, or a formula of `let`."""

from __future__ import annotations

import math
from functools import partial

from commeff.experiments.published.reproduce.constants import MissingPart, constant
from commeff.experiments.published.reproduce.formulas import evaluate
from commeff.experiments.published.reproduce.language import Call, Expression, LanguageError, Name
from commeff.experiments.published.reproduce.quantities import of_metric, onset
from commeff.experiments.published.reproduce.results import CaseResult, Results


def of_case(results: Results, result: CaseResult, tree: Expression) -> dict[int, float]:
    """What a table shows, prints or draws of a case, by seed; seeds that have no such number are left out.

    A quantity of a metric, such as floor(gap); onset(gap, psgd, 2) beside the case of `psgd` that has the same labels;
    or a name of `let`, where the case has the parts that it needs.
    """
    table = results.table
    if isinstance(tree, Name) and tree.text in table.let:
        try:
            number = constant(table, result.case, tree.text)
        except MissingPart:
            return {}
        return dict.fromkeys(result.seen, number)
    if not (isinstance(tree, Call) and tree.function == "onset"):
        return result.values(partial(of_metric, tree))
    if len(tree.arguments) != 3 or not all(isinstance(part, Name) for part in tree.arguments[:2]):
        raise LanguageError("onset takes a metric, a variant and a factor, such as onset(gap, psgd, 2)")
    metric, name, factor = tree.arguments
    assert isinstance(metric, Name)
    assert isinstance(name, Name)
    other = _like(results, result, name)
    if other is None or other is result:
        return {}
    return onsets(result, other, metric.text, evaluate(factor, _nothing))


def onsets(result: CaseResult, other: CaseResult, metric: str, factor: float) -> dict[int, float]:
    """The onset of each seed that both have run."""
    shared = sorted(result.seen.keys() & other.seen.keys())
    found = {seed: onset(result.seen[seed], other.seen[seed], metric, factor) for seed in shared}
    return {seed: value for seed, value in found.items() if not math.isnan(value)}


def _like(results: Results, result: CaseResult, name: Name) -> CaseResult | None:
    """The case of a variant whose labels are those of `result`, as far as its own cases differ in them."""
    own = [each.case for each in results.named(name.text, {})]
    keys = [key for key in results.table.swept if len({case.label(key) for case in own}) > 1]
    labels = {key: result.case.label(key) for key in keys}
    alike = {key: value for key, value in labels.items() if value is not None}
    return results.one(name.text, alike | dict(name.where))


def _nothing(name: str) -> float:
    raise LanguageError(f"{name!r} is no number there")
