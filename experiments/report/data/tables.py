"""Tables as they are meant, before any of them is HTML, Markdown, LaTeX or text on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from commeff.experiments.report.data.quantities import MISSING, Quantity, decimals, fixed, significant
from commeff.experiments.report.data.statistics import Estimate
from commeff.experiments.report.data.variants import is_number


@dataclass(frozen=True)
class Item:
    """One cell: its text, the half width of its interval, and what sorting goes by.

    best: to be printed bold. mark: a sign behind the number, explained in the table's notes.
    """

    text: str
    half: str = ""
    value: float | None = None
    best: bool = False
    mark: str = ""
    quiet: bool = False

    @property
    def plain(self) -> str:
        """The cell as text.

        >>> Item("95.1", "1.2", mark="†").plain
        '95.1 ± 1.2†'
        """
        return self.text + (f" ± {self.half}" if self.half else "") + self.mark


@dataclass(frozen=True)
class Column:
    """A heading, a second line for units and the like, and whether the column holds numbers or words."""

    heading: str
    under: str = ""
    words: bool = False
    code: bool = False
    brief: bool = True  # shown on a terminal too


@dataclass(frozen=True)
class Table:
    """Columns and rows; `data` has the numbers with all their digits, for the CSV file."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Item]]
    notes: Sequence[str] = ()
    data: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)


def estimates(column: Sequence[Estimate | None], of: Quantity, best: int | None = None) -> list[Item]:
    """A column of means with their intervals, all with the same number of decimals.

    >>> from commeff.experiments.report.data.quantities import quantity
    >>> [item.plain for item in estimates([Estimate(0.9512, 0.012, 3), None], quantity("val_accuracy"))]
    ['95.1 ± 1.2', '–']
    """
    places = decimals(column, of)
    mixed = any(found is not None and found.n > 1 for found in column)
    return [
        Item(MISSING, quiet=True)
        if found is None
        else Item(
            fixed(found.mean * of.scale, places),
            "" if found.half is None else fixed(found.half * of.scale, places),
            found.mean,
            best=position == best,
            mark=" (n=1)" if mixed and found.n == 1 else "",
        )
        for position, found in enumerate(column)
    ]


def differences(column: Sequence[Estimate | None], of: Quantity) -> list[Item]:
    """A column of differences, with signs; those whose interval holds zero are quiet."""
    places = decimals(column, of)
    return [
        Item(MISSING, quiet=True)
        if found is None
        else Item(
            fixed(found.mean * of.scale, places, signed=True),
            "" if found.half is None else fixed(found.half * of.scale, places),
            found.mean,
            quiet=not found.tells,
        )
        for found in column
    ]


def amounts(column: Sequence[float | None], scale: float = 1.0, suffix: str = "") -> list[Item]:
    """A column of counted or measured amounts, three digits each.

    >>> [item.text for item in amounts([14_430_000, None, 484_800], scale=1e-6)]
    ['14.4', '–', '0.485']
    """
    return [
        Item(MISSING, quiet=True) if found is None else Item(significant(found * scale) + suffix, value=found)
        for found in column
    ]


def word(text: str, quiet: bool = False) -> Item:
    """A cell of words."""
    return Item(text or MISSING, quiet=quiet or not text)


def number(value: float | None, text: str | None = None) -> Item:
    """A cell with one number."""
    if value is None:
        return Item(MISSING, quiet=True)
    return Item(significant(value) if text is None else text, value=value)


def transpose(columns: Sequence[Sequence[Item]]) -> list[list[Item]]:
    """Rows from columns."""
    return [list(row) for row in zip(*columns, strict=True)]


def label_of(value: str | None) -> Item:
    """A label's value, sorted as a number where it is one."""
    if value is None:
        return Item(MISSING, quiet=True)
    return Item(value, value=float(value) if is_number(value) else None)


def spread_of(name: str, found: Estimate | None) -> dict[str, object]:
    """The columns of a CSV file that hold an estimate.

    >>> spread_of("val_loss", Estimate(0.5, 0.1, 3))
    {'val_loss': 0.5, 'val_loss_interval': 0.1, 'val_loss_n': 3}
    """
    if found is None:
        return {}
    return {name: found.mean, f"{name}_interval": found.half, f"{name}_n": found.n}
