"""What a function of a case may ask for: its labels, its settings, and constants of its parts.

`c["times"]` and `c["workers"]` are numbers where they can be, otherwise words; `c.task.NAME`, `c.topology.NAME` and
`c.compressor.NAME` are what `commeff.experiments.catalogue.constants` has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from commeff.experiments.catalogue.constants import PARTS, NoConstantError, NoPartError, constant
from commeff.experiments.config.plugins import Choice
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.reproduce.cases import Case, Setting, number_in
from commeff.experiments.reproduce.reading import TableError
from commeff.require import did_you_mean

if TYPE_CHECKING:
    from commeff.experiments.reproduce.table import PublishedTable

DIGITS = 6  # of a number that a function puts into a setting: libraries differ in the last digits


class MissingPartError(TableError):
    """A function asks for a part that the method of the case does not take."""


class PartsNotKnownError(TableError):
    """A function asks for a part of a case where that is not worked out yet."""


@dataclass(frozen=True)
class CaseView:
    """A case as functions of a table see it.

    Attributes
    ----------
    table, case : which.
    parts : "built"; "later", where asking raises; "none", where constants are NaN: of a case that a scale leaves out.
    within : settings that are being worked out.
    seed : of the run that a quantity is of; None where a function speaks of all seeds.
    """

    table: PublishedTable
    case: Case
    parts: str = "built"
    within: tuple[str, ...] = ()
    seed: int | None = None

    def __getitem__(self, key: str) -> Any:
        """The number, or the word, of a label or a setting."""
        if key == "seed" and self.seed is not None:
            return self.seed
        name = self.case.key(key)
        if name in self.within:
            raise TableError(f"{key} refers to itself")
        value = self.case.settings.get(name, self.case.labels.get(name))
        if value is None:
            known = [*self.case.labels, *self.case.settings]
            raise TableError(f"{self.case.name} has no label or setting {key!r}{did_you_mean(key, known)}")
        if callable(value):
            return value(replace(self, within=(*self.within, name)))
        return number_in(value)

    def __getattr__(self, part: str) -> PartConstants:
        """The constants of a part: c.task, c.topology, c.compressor."""
        if part not in PARTS:
            raise AttributeError(f"a case has {', '.join(PARTS)} and labels, such as c[{part!r}]")
        return PartConstants(self, part)


@dataclass(frozen=True)
class PartConstants:
    """The constants of a part of a case."""

    _case: CaseView
    _part: str

    def __getattr__(self, name: str) -> float:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._case.parts == "later":
            raise PartsNotKnownError(f"{self._part}.{name} is not known yet")
        if self._case.parts == "none":
            return math.nan
        try:
            config = _composed(self._case.table.choices, *_plain_words(self._case))
            return constant(config, self._part, name)
        except NoPartError as error:
            raise MissingPartError(str(error)) from None
        except NoConstantError as error:
            raise TableError(str(error)) from None


@cache
def _composed(choices: tuple[Choice, ...], *words: str) -> Mapping[str, Any]:
    """The configuration of a run with these settings."""
    from commeff.experiments.config.compose import compose

    return compose(words, choices)


def _plain_words(view: CaseView) -> list[str]:
    """The settings of a case that depend on no constants of parts: these decide the parts."""
    words = []
    for key, value in view.case.settings.items():
        with suppress(PartsNotKnownError):
            words.append(f"{key}={worked_out(view.table, view.case, key, value, parts='later')}")
    return [*words, f"seed={view.table.seeds[0]}"]


def resolved(table: PublishedTable, case: Case, changes: Mapping[str, Setting] | None = None) -> dict[str, str]:
    """The settings of a case, functions worked out; those of changes know the case without them."""
    return {key: worked_out(table, case, key, value) for key, value in {**case.settings, **(changes or {})}.items()}


def worked_out(table: PublishedTable, case: Case, key: str, value: Any, parts: str = "built") -> str:
    """A value as it is written into a setting of a case."""
    if not callable(value):
        return str(value)
    result = value(CaseView(table, case, parts, (key,) if case.settings.get(key) is value else ()))
    if isinstance(result, (str, bool)):
        return text(result)
    return f"{number_of(result, key):.{DIGITS}g}"


def number_of(value: Any, what: str) -> float:
    """The number that a function of a table has given."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TableError(f"{what} must be a number, got {value!r}") from None
