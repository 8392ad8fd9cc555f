"""What the numbers of a report show, in a few sentences and with the care that few seeds ask for."""

from __future__ import annotations

from collections.abc import Sequence

from commeff.experiments.report.data.analysis import Analysis, Row, allowance, said, told_apart
from commeff.experiments.report.data.quantities import TIMES, decimals, fixed, quantity, significant
from commeff.experiments.report.data.statistics import Estimate

FEW = 3  # fewer seeds than this are called too few


def findings(analysis: Analysis) -> list[str]:
    """The best variant, the cheapest good one, and what is clearly worse than the baseline."""
    measured = [row for row in analysis.rows if analysis.metric in row.finals]
    if len(measured) < 2:
        return []
    lines = [say(measured, analysis) for say in (_best, _cheapest, _worse, _few)]
    return [line for line in lines if line]


def _best(measured: Sequence[Row], analysis: Analysis) -> str:
    top = next(row for row in measured if row.variant is analysis.champion)
    column = [row.finals[analysis.metric] for row in measured]
    number = _number(top.finals[analysis.metric], column, analysis)
    line = f"Best mean {said(analysis.metric)} of {len(measured)} variants: {top.variant.name}, {number}"
    alike = [row.variant.name for row in measured if told_apart(row) is False]
    return f"{line}; these seeds do not tell it from {listed(alike)}." if alike else f"{line}."


def _cheapest(measured: Sequence[Row], analysis: Analysis) -> str:
    """The row that saves most among those whose mean is within a point (or 1 % of the loss) of their baseline's."""
    close = [row for row in measured if row.saving and row.saving > 1 and _within(row, analysis)]
    if not close:
        return ""
    row = max(close, key=lambda row: row.saving or 0.0)
    if row.saving is None or row.difference is None or row.baseline is None:
        return ""
    near = "one point" if quantity(analysis.metric).unit == "%" else "1 %"
    differences = [other.difference for other in measured]
    return (
        f"Fewest bytes with a mean within {near} of {row.baseline.name}: {row.variant.name} sends "
        f"{significant(row.saving)}{TIMES} less on the wire, at a difference of "
        f"{_number(row.difference, differences, analysis, signed=True)}."
    )


def _within(row: Row, analysis: Analysis) -> bool:
    base = row.baseline.final(analysis.metric) if row.baseline else None
    if base is None or row.difference is None:
        return False
    sign = 1.0 if analysis.metric.endswith("accuracy") else -1.0
    return sign * row.difference.mean >= -allowance(base.mean, analysis.metric)


def _worse(measured: Sequence[Row], analysis: Analysis) -> str:
    sign = 1.0 if analysis.metric.endswith("accuracy") else -1.0
    worse = [
        row.variant.name
        for row in measured
        if row.difference and row.difference.tells and sign * row.difference.mean < 0
    ]
    return f"Worse than the baseline by more than the interval: {listed(worse)}." if worse else ""


def _few(measured: Sequence[Row], analysis: Analysis) -> str:
    least = min(row.finals[analysis.metric].n for row in measured)
    if least >= FEW:
        return ""
    return (
        f"Some variants have {least} seed{'s' if least > 1 else ''} only: too few to tell small differences from noise."
    )


def _number(found: Estimate, column: Sequence[Estimate | None], analysis: Analysis, signed: bool = False) -> str:
    """A number of the main table, with the decimals that its column has there."""
    of = quantity(analysis.metric)
    places = decimals(column, of)
    unit = " points" if signed and of.unit == "%" else " %" if of.unit == "%" else ""
    half = "" if found.half is None else f" ± {fixed(found.half * of.scale, places)}"
    return f"{fixed(found.mean * of.scale, places, signed)}{half}{unit}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence; of many their number.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdef"))
    ('a', 'a, b and c', '6 others')
    """
    if len(names) > 4:
        return f"{len(names)} others"
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
