"""Columns of cells: estimates with their intervals, differences, amounts, words and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from commeff.experiments.report.data.quantities import (
    MISSING,
    TIMES,
    Quantity,
    between,
    decimals,
    fixed,
    half_width,
    significant,
    spread,
)
from commeff.experiments.report.data.statistics import Estimate
from commeff.experiments.report.data.variants import is_number
from commeff.experiments.report.write.table import Column, Item, Table

NOTHING = Item(MISSING, quiet=True)
EQUAL = "°"  # behind an interval without width
WHY_EQUAL = f"{EQUAL} All its seeds gave the same number, so the interval has no width."


def estimates(column: Sequence[Estimate | None], of: Quantity, best: int | None = None) -> list[Item]:
    """A column of means with their intervals, all with the same number of decimals.

    >>> from commeff.experiments.report.data.quantities import quantity
    >>> [item.plain for item in estimates([Estimate(0.9512, 0.012, 3), None], quantity("val_accuracy"))]
    ['95.1 ± 1.2', '–']
    """
    places = decimals(column, of)
    mixed = any(value is not None and value.n > 1 for value in column)
    return [
        NOTHING
        if value is None
        else Item(
            significant(value.mean * of.scale) if value.log else fixed(value.mean * of.scale, places),
            half_width(value, of, places),
            value.mean,
            best=position == best,
            mark=" (n=1)" if mixed and value.n == 1 else _width(value, of.scale),
        )
        for position, value in enumerate(column)
    ]


def _width(value: Estimate, scale: float = 1.0) -> str:
    """The interval of a logarithm in brackets, and a mark on any that has no width."""
    if value.half == 0:
        return EQUAL
    return between(value, scale) if value.log else ""


def explained(table: Table) -> Table:
    """A table with a note on intervals that have no width, if it has any."""
    marked = any(EQUAL in item.mark for column in table.columns for item in column.items)
    return replace(table, notes=[*table.notes, WHY_EQUAL]) if marked else table


def differences(column: Sequence[Estimate | None], of: Quantity) -> list[Item]:
    """A column of differences, with signs, or of ratios; those whose interval holds none are quiet."""
    places = decimals(column, of)
    return [
        NOTHING
        if value is None
        else Item(
            significant(value.mean) + TIMES if value.log else fixed(value.mean * of.scale, places, signed=True),
            half_width(value, of, places),
            value.mean,
            quiet=not value.tells,
            mark=_width(value),
        )
        for value in column
    ]


def amounts(column: Sequence[float | None], scale: float = 1.0, suffix: str = "") -> list[Item]:
    """A column of counted or measured amounts, three digits each.

    >>> [item.text for item in amounts([14_430_000, None, 484_800], scale=1e-6)]
    ['14.4', '–', '0.485']
    """
    return [NOTHING if value is None else Item(significant(value * scale) + suffix, value=value) for value in column]


def word(text: str, quiet: bool = False) -> Item:
    """A cell of words."""
    return Item(text or MISSING, quiet=quiet or not text)


def seeds(n: int, of: int) -> Item:
    """How many of the seeds did it; pale where some did not."""
    return Item(f"{n} of {of}", value=n, quiet=n < of)


def cost(value: Estimate, scale: float = 1.0) -> Item:
    """What something took, down to the second digit of its interval."""
    mean, half = spread(value.mean * scale, None if value.half is None else value.half * scale)
    return Item(mean, half, value.mean, mark=EQUAL if value.half == 0 else "")


def words(heading: str, texts: Iterable[str], under: str = "", **settings: bool) -> Column:
    """A column of words; `settings` are those of `Column`."""
    return Column(heading, under, [word(text) for text in texts], words=True, **settings)


def label_of(value: str | None) -> Item:
    """A label's value, sorted as a number where it is one."""
    return NOTHING if value is None else Item(value, value=float(value) if is_number(value) else None)


def spread_of(name: str, value: Estimate | None) -> dict[str, object]:
    """The columns of a CSV file that hold an estimate.

    >>> spread_of("val_loss", Estimate(0.5, 0.1, 3))
    {'val_loss': 0.5, 'val_loss_interval': 0.1, 'val_loss_n': 3}
    >>> spread_of("ratio", Estimate(2.0, 0.0, 3, log=True)), spread_of("ratio", None)
    ({'ratio': 2.0, 'ratio_low': 2.0, 'ratio_high': 2.0, 'ratio_n': 3}, {})
    """
    if value is None:
        return {}
    low, high = (None, None) if value.half is None else value.ends
    interval = {f"{name}_low": low, f"{name}_high": high} if value.log else {f"{name}_interval": value.half}
    return {name: value.mean, **interval, f"{name}_n": value.n}
