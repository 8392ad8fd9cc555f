"""What can be seen before anything runs: labels, cases, metrics and constants of which a table speaks and has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.schema import ConfigError, built_in, did_you_mean
from commeff.experiments.published.reproduce.cases import values_by_label
from commeff.experiments.published.reproduce.grammar import check_call
from commeff.experiments.published.reproduce.language import Call, Expression, LanguageError, Name, parse_formula, walk
from commeff.experiments.published.reproduce.statements import BYTES, SECONDS

if TYPE_CHECKING:
    from commeff.experiments.published.reproduce.table import PublishedTable

FINALS = (  # at the end of every run, or of some
    *("step", "steps", "workers", "lr", "test_loss", "test_accuracy", "start_loss", "parameter_norm"),
    *("exposed_seconds", "simulated_seconds", "events", "held_bytes", *SECONDS, *BYTES),
)


def check_labels(table: PublishedTable, raw: Mapping[str, Any]) -> None:
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
    if table.figure is not None:
        drawn = [*table.figure.lines, *([table.figure.panels] if table.figure.panels else [])]
        faults += [f"figure: {fault}" for key in drawn for fault in _unknown(table, key)]
    own = (raw.get("scales") or {}).get(table.scale) or {}
    rules = [("keep", own.get("keep") or {}), *(("exclude", rule) for rule in raw.get("exclude") or [])]
    for part, rule in rules:
        faults += [f"{part}: {fault}" for key in rule if key != "name" for fault in _unknown(table, str(key))]
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))


def _claims(table: PublishedTable) -> Iterator[list[str]]:
    names = {case.name for case in table.full_cases}
    for number, claim in enumerate(table.claims, 1):
        variants = [part for part in walk(claim.tree) if isinstance(part, Name) and part.text in names]
        places = [([part.text], {**dict(claim.where), **dict(part.where)}) for part in variants]
        found = [fault for key in claim.each if key != "name" for fault in _unknown(table, key)]
        for who, where in places or [(sorted(names), dict(claim.where))]:
            found += _place_faults(table, who, where)
        yield [f"claims: entry {number}: {fault}" for fault in dict.fromkeys(found)]


def _place_faults(table: PublishedTable, names: Sequence[str], where: Mapping[str, str]) -> list[str]:
    """What is wrong with labels by which cases of variants are picked."""
    unknown = [fault for key in where if key != "name" for fault in _unknown(table, key)]
    own = [case for case in table.full_cases if case.name in names]
    if unknown or any(all(case.label(key) in (None, value) for key, value in where.items()) for case in own):
        return unknown
    words = ", ".join(f"{key}={value}" for key, value in where.items())
    has = "; ".join(f"{key}: {', '.join(values)}" for key, values in values_by_label(own, where).items())
    return [f"no case of {' or '.join(names)} has {words}; there are {has}"]


def _unknown(table: PublishedTable, key: str) -> list[str]:
    if any(case.label(key) is not None for case in table.full_cases):
        return []
    labels = dict.fromkeys(label for case in table.full_cases for label in case.labels)
    return [f"{key!r} is no label of the grid{did_you_mean(key, labels)}; it has {', '.join(labels)}"]


def check_metrics(table: PublishedTable, settings: Sequence[Mapping[str, str]]) -> None:
    """Refuse what looks like a metric of a case's task and is none, and quantities that are not written as ones.

    Raises
    ------
    ConfigError : with all of them.
    """
    faults = [f"show: {fault}" for text in table.show for fault in _quantity_faults(table, parse_formula(text))]
    for number, printed in enumerate(table.numbers, 1):
        faults += [f"numbers: entry {number}: of: {fault}" for fault in _quantity_faults(table, printed.of)]
    if table.figure is not None:
        faults += [f"figure.y: {fault}" for fault in _quantity_faults(table, table.figure.y)]
    tasks = {own.get("task", "") for own in settings} & {*built_in("task")} if table.measure == "training" else set()
    if tasks:
        faults += _metric_faults(table, sorted(tasks))
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))


def _metric_faults(table: PublishedTable, tasks: Sequence[str]) -> list[str]:
    from commeff.experiments.grid.plan.expand import measured_by_name

    measured = {*FINALS, *table.derived, *(name for task in tasks for name in measured_by_name(task))}
    known = [key for case in table.full_cases for key in (case.name, *case.labels, *case.settings)]
    ends = [part for key in (*known, *table.let) for part in (key, key.rpartition(".")[2])]
    names = sorted(table.metrics - measured - {*ends, "others", "bits", "pi"})
    near = {name: did_you_mean(name, sorted(measured)) for name in names if "." not in name}
    return [f"no run of {' or '.join(tasks)} measures {name!r}{words}" for name, words in near.items() if words]


def _quantity_faults(table: PublishedTable, tree: Expression) -> list[str]:
    from commeff.experiments.published.reproduce.quantities import Observation, of_metric

    try:
        for part in walk(tree):
            if isinstance(part, Call):
                check_call(part)
        if not (isinstance(tree, Call) and tree.function == "onset") and not isinstance(tree, Name):
            of_metric(tree, Observation({}))
    except LanguageError as error:
        return [str(error)]
    return []
