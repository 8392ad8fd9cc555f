"""The cases of a table: the combinations of every entry of its grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from commeff.experiments.grid.plan.spec import text
from commeff.require import did_you_mean

MOST_CASES = 2_000
Setting = str | Callable[[Any], Any]  # a function of the case works out its value


@dataclass(frozen=True)
class Case:
    """One line of the table's grid: what is run, with every seed, or measured.

    Attributes
    ----------
    name : of the variant, as claims call it.
    labels : parameters and settings of the grid's entry, by key, in words.
    settings : of the run.
    """

    name: str
    labels: Mapping[str, str]
    settings: Mapping[str, Setting]

    def key(self, key: str) -> str:
        """The label that a key, or the end of one, means; the key itself where it is no label."""
        if key in self.labels:
            return key
        return next((own for own in self.labels if own.endswith(f".{key}")), key)

    def label(self, key: str) -> str | None:
        """The value of a label, by its key or the end of its key; that of `name` is the variant."""
        return self.name if key == "name" else self.labels.get(self.key(key))

    def has(self, where: Mapping[str, str]) -> bool:
        """Whether it has these labels, as far as it has them at all."""
        return all(self.label(key) in (None, value) for key, value in where.items())


def setting(value: Any) -> Setting:
    """A setting as a word of the command; a function stays one."""
    return value if callable(value) else text(value)


def in_words(value: Setting) -> str:
    """A setting as a page shows it: a function by its name."""
    return f"={getattr(value, '__name__', 'a function')}" if callable(value) else value


def read_cases(
    entries: Any, base: Mapping[str, Setting], added: Mapping[str, Setting], parameters: list[str], faults: list[str]
) -> list[Case]:
    """The combinations of every entry of the grid; `added` overrides settings."""
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        faults.append('grid must be a list of settings, such as [{"name": "psgd", "method": "psgd"}]')
        return []
    axes = [{str(k): values_of(v) for k, v in entry.items() if k != "name"} for entry in entries]
    if sum(prod(map(len, each.values())) for each in axes) > MOST_CASES:
        faults.append(f"grid must have at most {MOST_CASES:,} cases, got more; sweep less")
        return []
    every = []
    for number, (entry, own) in enumerate(zip(entries, axes, strict=True), 1):
        faults += [f"grid: entry {number}: {key} has no values" for key, values in own.items() if not values]
        if "name" not in entry and "method" not in own:
            faults.append(f"grid: entry {number} has no name, by which claims call it; add a name")
        for values in product(*own.values()):
            labels = dict(zip(own, values, strict=True))
            name = str(entry.get("name") or in_words(labels.get("method", "")))
            settings = {**base, **{k: v for k, v in labels.items() if k not in parameters}}
            settings |= {key: value for key, value in added.items() if key not in parameters}
            labels |= {k: v for k, v in added.items() if k in labels}
            every.append(Case(name, {key: in_words(value) for key, value in labels.items()}, settings))
    return every


def absent_values(cases: Sequence[Case], rule: Mapping[str, list[str]], part: str) -> list[str]:
    """A line for each label of a rule that no case has, and for each value of it."""
    faults = []
    for key, values in rule.items():
        known = values_by_label(cases, [key])[key]
        if not known:
            faults += [f"{part}: {fault}" for fault in unknown_label(cases, key)]
            continue
        faults += [
            f"{part}: no case has {key}={value}; there are {', '.join(known)}" for value in values if value not in known
        ]
    return faults


def unknown_label(cases: Sequence[Case], key: str) -> list[str]:
    """A line if no case has a label."""
    if any(case.label(key) is not None for case in cases):
        return []
    labels = dict.fromkeys(label for case in cases for label in case.labels)
    return [f"{key!r} is no label of the grid{did_you_mean(key, labels)}; it has {', '.join(labels)}"]


def absent_places(cases: Sequence[Case], name: str, where: Mapping[str, str]) -> list[str]:
    """What is wrong with a variant, and with labels by which cases of it are picked."""
    own = [case for case in cases if case.name == name]
    if not own:
        names = dict.fromkeys(case.name for case in cases)
        return [f"no variant {name!r}{did_you_mean(name, names)}; there are {', '.join(names)}"]
    unknown = [fault for key in where for fault in unknown_label(cases, key)]
    if unknown or any(case.has(where) for case in own):
        return unknown
    there = ", ".join(f"{key}={value}" for key, value in where.items())
    has = "; ".join(f"{key}: {', '.join(values)}" for key, values in values_by_label(own, where).items())
    return [f"no case of {name} has {there}; there are {has}"]


def repeated(cases: Sequence[Case]) -> list[str]:
    """The cases, in words, that are there more than once."""
    counts = Counter(" ".join([case.name, *(f"{key}={value}" for key, value in case.labels.items())]) for case in cases)
    return [words for words, count in counts.items() if count > 1]


def kept(case: Case, keep: Mapping[str, list[str]]) -> bool:
    """Whether a scale keeps a case: none of its labels has another value than those named."""
    return all(case.label(key) in (None, *allowed) for key, allowed in keep.items())


def values_by_label(cases: Iterable[Case], keys: Iterable[str]) -> dict[str, list[str]]:
    """The values that labels have in some cases."""
    own = [*cases]
    return {key: [*dict.fromkeys(value for case in own if (value := case.label(key)) is not None)] for key in keys}


def values_of(value: Any) -> list[Setting]:
    """One value or a list of them."""
    return [setting(each) for each in (value if isinstance(value, list) else [value])]
