"""What claims are made of: `r` is the table, `r.at(lr=0.1)` a part of it, `r.dsgd` a variant there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from commeff.experiments.grid.plan.spec import text
from commeff.experiments.reproduce.cases import check_label, check_place, check_variant, values_in
from commeff.experiments.reproduce.constants import PARTS, CaseView, PartConstants
from commeff.experiments.reproduce.results import CaseResult, Results
from commeff.experiments.reproduce.values import Value


@dataclass(frozen=True, eq=False)
class TablePlace:
    """The results of a table at some labels, all of them unless `where` says.

    A variant is an attribute, r.dsgd, or an item, r["one peer"].
    """

    results: Results
    where: Mapping[str, str] = field(default_factory=dict)

    def at(self, **labels: Any) -> TablePlace:
        """The cases with these labels, by the end of their keys: r.at(lr=0.1)."""
        where = {key: text(value) for key, value in labels.items()}
        self._check(*where)
        return TablePlace(self.results, {**self.where, **where})

    def each(self, *labels: str, of: str = "") -> Iterator[TablePlace]:
        """One place after the other: the combinations of these labels that a variant has, or that any variant has.

        Where this scale has none of them, the place itself.
        """
        self._check(*labels)
        own = [found.case for found in self.results.cases if found.case.has(self.where)]
        if of:
            check_variant(self.results.table.full_cases, of)
            own = [case for case in own if case.name == of]
        combinations = product(*(values_in(own, key) for key in labels))
        found = [{**self.where, **dict(zip(labels, values, strict=True))} for values in combinations]
        present = [where for where in found if any(case.has(where) for case in own)]
        yield from (TablePlace(self.results, where) for where in present or [dict(self.where)])

    def _check(self, *labels: str) -> None:
        for key in labels:
            check_label(self.results.table.full_cases, key)

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
        own = {key: text(value) for key, value in labels.items()}
        return TableVariant(self.results, self.name, self.place, {**self.labels, **own})

    @cached_property
    def result(self) -> CaseResult | None:
        """Its only case; None where this scale leaves it out."""
        return self.results.one(self.name, self.where)

    def absent(self) -> Value:
        """What every quantity of it is where it was not run."""
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
        """As that of a case."""
        return getattr(self._case, part) if part in PARTS else self.__getattribute__(part)
