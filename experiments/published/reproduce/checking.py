"""What can be seen before anything runs: labels and cases of which a table speaks and has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.published.reproduce.cases import Case, unknown_label, values_by_label
from commeff.experiments.published.reproduce.language import Name, walk

if TYPE_CHECKING:
    from commeff.experiments.published.reproduce.table import PublishedTable


def check_labels(table: PublishedTable) -> None:
    """Refuse labels that no entry of the grid has, and values of them that no case has.

    Raises
    ------
    ConfigError : with all of them.
    """
    faults = [fault for claim in _claims(table) for fault in claim]
    faults += [
        f"numbers: entry {number}: {fault}"
        for number, printed in enumerate(table.numbers, 1)
        for fault in _place_faults(table, [printed.variant], dict(printed.where))
    ]
    faults += _ranks(table)
    if table.figure is not None:
        drawn = [*table.figure.lines, *([table.figure.panels] if table.figure.panels else [])]
        faults += [f"figure: {fault}" for key in drawn for fault in unknown_label(table.full_cases, key)]
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))


def _ranks(table: PublishedTable) -> Iterator[str]:
    """Refuse to rank the only number of a quantity, which is always in its place."""
    if table.tolerance.kind != "rank":
        return
    own = table.full_cases
    cases = own if table.tune is None else [group[0] for group in table.tune.groups((case, case) for case in own)]
    for place, one in enumerate(table.numbers, 1):
        numbers = [number for number in table.numbers if number.of == one.of]
        if sum(_has(case, [number.variant], dict(number.where)) for number in numbers for case in cases) < 2:
            yield (
                f"numbers: entry {place} is the only one of its quantity, which tolerance kind rank finds in its place "
                "whatever it is; print another, or give kind relative or absolute"
            )


def _claims(table: PublishedTable) -> Iterator[list[str]]:
    names = {case.name for case in table.full_cases}
    for number, claim in enumerate(table.claims, 1):
        variants = [part for part in walk(claim.tree) if isinstance(part, Name) and part.text in names]
        places = [([part.text], {**dict(claim.where), **dict(part.where)}) for part in variants]
        found = [fault for key in claim.each for fault in unknown_label(table.full_cases, key)]
        for who, where in places or [(sorted(names), dict(claim.where))]:
            found += _place_faults(table, who, where)
        yield [f"claims: entry {number}: {fault}" for fault in dict.fromkeys(found)]


def _place_faults(table: PublishedTable, names: Sequence[str], where: Mapping[str, str]) -> list[str]:
    """What is wrong with labels by which cases of variants are picked."""
    unknown = [fault for key in where for fault in unknown_label(table.full_cases, key)]
    own = [case for case in table.full_cases if case.name in names]
    if unknown or any(_has(case, names, where) for case in own):
        return unknown
    words = ", ".join(f"{key}={value}" for key, value in where.items())
    has = "; ".join(f"{key}: {', '.join(values)}" for key, values in values_by_label(own, where).items())
    return [f"no case of {' or '.join(names)} has {words}; there are {has}"]


def _has(case: Case, names: Sequence[str], where: Mapping[str, str]) -> bool:
    """Whether a case is of these variants and has these labels, as far as it has them at all."""
    return case.name in names and all(case.label(key) in (None, value) for key, value in where.items())
