"""The words of a table: quantities of a case, each a number for each seed.

A quantity is a metric at the end, something that a curve says of it, a function of the case, or arithmetic with these.
It is shown, printed, drawn and, asked of a variant, claimed: `gap = floor("val_loss")`, `show = [gap]`,
`gap(r.d2) < 1e-6 * gap(r.dsgd)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from commeff.experiments.reproduce import quantities
from commeff.experiments.reproduce.arithmetic import SIGNS, Arithmetic
from commeff.experiments.reproduce.constants import CaseView, MissingPartError, number_of
from commeff.experiments.reproduce.faults import TableError
from commeff.experiments.reproduce.quantities import DOWN_TO, Observation
from commeff.experiments.reproduce.results import CaseResult, Results
from commeff.experiments.reproduce.values import Value

if TYPE_CHECKING:
    from commeff.experiments.reproduce.places import TableVariant

BINDING = {"+": 0, "-": 0, "*": 1, "/": 1, "**": 2}  # of the last sign of a text
ATOM = 3


@dataclass(frozen=True, eq=False)
class TableQuantity(Arithmetic):
    """A number of a case for each seed.

    Attributes
    ----------
    text : as a page shows it.
    metrics : recorded numbers that it is of.
    number : of a case with one seed; NaN where there is none.
    beside : the variant that it is beside, if any.
    binding : of the last sign in its text.
    """

    text: str
    metrics: tuple[str, ...]
    number: Callable[[Results, CaseResult, int], float]
    beside: str = ""
    binding: int = ATOM

    def by_seed(self, results: Results, result: CaseResult) -> dict[int, float]:
        """Its numbers; seeds that have none are left out."""
        found = {seed: self.number(results, result, seed) for seed in result.seen}
        return {seed: value for seed, value in found.items() if not math.isnan(value)}

    def __call__(self, variant: TableVariant) -> Value:
        """Its value for the only case of a variant at a place."""
        variant.results.table.check_quantity(self)
        result = variant.result
        if result is None or not result.seen:
            return variant.absent()
        found = self.by_seed(variant.results, result)
        left_out = {seed: variant.name for seed in result.seen if seed not in found}
        absent = "" if found else f"{variant.name} has no {self.text}"
        return Value(found, {} if absent else left_out, variant.place, variant.results.table.exact, absent)

    def _with(self, sign: str, left: object, right: object) -> TableQuantity:
        return _combined(left, sign, right)


def _combined(left: object, sign: str, right: object) -> TableQuantity:
    """Two quantities with a sign between them: where one has no number, nor has this.

    >>> (final("a") / final("b") * 4).text, (final("a") / (final("b") - 1)).text
    ('a / b * 4', 'a / (b - 1)')
    """
    binding, function = BINDING[sign], SIGNS[sign]
    one, two = quantity(left), quantity(right)

    def number(results: Results, result: CaseResult, seed: int) -> float:
        return quantities.measured(function, one.number(results, result, seed), two.number(results, result, seed))

    texts = [
        f"({each.text})" if each.binding < least else each.text for each, least in ((one, binding), (two, binding + 1))
    ]
    return TableQuantity(f" {sign} ".join(texts), one.metrics + two.metrics, number, one.beside or two.beside, binding)


def quantity(of: object) -> TableQuantity:
    """What a table shows, prints or draws: the name of a metric, a quantity, a function of the case or a number."""
    if isinstance(of, TableQuantity):
        return of
    if isinstance(of, str):
        return final(of)
    if callable(of):
        return _of_case(of)
    if isinstance(of, (int, float)) and not isinstance(of, bool):
        value = float(of)
        return TableQuantity(f"{of:.15g}", (), lambda results, result, seed: value)
    raise TableError(f"a quantity is a metric, floor(...) or another of one, or a function of the case, got {of!r}")


def _of_case(function: Callable[[Any], Any]) -> TableQuantity:
    """A function of the case, where the case has the parts that it needs."""
    name = getattr(function, "__name__", "a function")

    def number(results: Results, result: CaseResult, seed: int) -> float:
        try:
            return number_of(function(CaseView(results.table, result.case, seed=seed)), name)
        except MissingPartError:
            return math.nan

    return TableQuantity(name, (), number)


def _of_run(text: str, measure: Callable[[Observation], float], *metrics: str) -> TableQuantity:
    for metric in metrics:
        if not isinstance(metric, str):
            raise TableError(f"{text.partition('(')[0]} takes the name of a metric, got {metric!r}")
    return TableQuantity(text, metrics, lambda results, result, seed: measure(result.seen[seed]))


def final(metric: str) -> TableQuantity:
    """The metric at the end of a run."""
    return _of_run(str(metric), lambda seen: seen.final(metric), metric)


def floor(metric: str) -> TableQuantity:
    """The mean over the last quarter of the evaluations."""
    return _of_run(f"floor({metric})", lambda seen: quantities.floor(seen, metric), metric)


def least(metric: str) -> TableQuantity:
    """The smallest evaluation."""
    return _of_run(f"least({metric})", lambda seen: quantities.least(seen, metric), metric)


def rate(metric: str, down_to: float = DOWN_TO) -> TableQuantity:
    """The factor a step by which it falls, until it is below `down_to` of its start."""
    text = f"rate({metric})" if down_to == DOWN_TO else f"rate({metric}, down_to={short(down_to)})"
    return _of_run(text, lambda seen: quantities.rate(seen, metric, down_to), metric)


def to(metric: str, level: float, of: str = "wire_bytes") -> TableQuantity:
    """The first evaluated `of` at which the metric is at most `level` (an accuracy: at least); infinite if never."""
    text = f"to({metric}, {short(level)}" + (")" if of == "wire_bytes" else f", of={of})")
    return _of_run(text, lambda seen: quantities.to(seen, metric, level, of), metric, of)


def onset(metric: str, beside: str, factor: float) -> TableQuantity:
    """The first evaluated step from which on it is within `factor` of that of the variant `beside`, at the same step.

    The case beside is that whose labels are the same, as far as the variant has them.
    """
    if not factor > 1:
        raise TableError(f"the factor of onset must be more than 1, got {factor:g}")

    def number(results: Results, result: CaseResult, seed: int) -> float:
        other = results.like(result, beside)
        if other is None or other is result or seed not in other.seen:
            return math.nan
        return quantities.onset(result.seen[seed], other.seen[seed], metric, factor)

    return TableQuantity(f"onset({metric}, {beside}, {factor:g})", (metric,), number, beside)


def short(number: float) -> str:
    """A level as one writes it.

    >>> short(1e-6), short(0.01), short(0.3), short(25)
    ('1e-6', '1e-2', '0.3', '25')
    """
    plain = f"{number:g}".replace("e-0", "e-").replace("e+0", "e")
    power = f"{number:e}".replace("e-0", "e-").replace("e+0", "e")
    scientific = "".join([power.partition("e")[0].rstrip("0").rstrip("."), "e", power.partition("e")[2]])
    return scientific if abs(number) < 0.1 and len(scientific) <= len(plain) else plain
