"""The cases of a table: the combinations of every entry of its grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.grid.plan.spec import text

MOST_CASES = 2_000


@dataclass(frozen=True)
class Case:
    """One line of the table's grid: what is run, with every seed, or measured.

    Attributes
    ----------
    name : of the variant, as claims call it.
    labels : parameters and settings of the grid's entry, by key.
    settings : of the run; a value that begins with = is a formula.
    """

    name: str
    labels: Mapping[str, str]
    settings: Mapping[str, str]

    def label(self, key: str) -> str | None:
        """The value of a label, by its key or the end of its key; that of `name` is the variant."""
        if key == "name":
            return self.name
        if key in self.labels:
            return self.labels[key]
        return next((value for own, value in self.labels.items() if own.endswith(f".{key}")), None)


def read_cases(
    raw: Mapping[str, Any], base: Mapping[str, str], added: Mapping[str, str], parameters: list[str], faults: list[str]
) -> list[Case]:
    """The combinations of every entry of the grid, less what is excluded; `added` overrides settings."""
    entries, excluded = raw.get("grid") or [], raw.get("exclude") or []
    lists = isinstance(entries, list) and isinstance(excluded, list)
    if not entries or not lists or not all(isinstance(entry, dict) for entry in [*entries, *excluded]):
        faults.append("grid and exclude must be lists of settings, such as [{name: psgd, method: psgd}]")
        return []
    axes = [{str(k): values_of(v) for k, v in entry.items() if k != "name"} for entry in entries]
    if sum(_size(each) for each in axes) > MOST_CASES:
        faults.append(f"grid must have at most {MOST_CASES:,} cases, got more; sweep less")
        return []
    every = []
    for number, (entry, own) in enumerate(zip(entries, axes, strict=True), 1):
        faults += [f"grid: entry {number}: {key} has no values" for key, values in own.items() if not values]
        if "name" not in entry and "method" not in own:
            faults.append(f"grid: entry {number} has no name, by which claims call it; add `name: ...`")
        for values in product(*own.values()):
            labels = dict(zip(own, values, strict=True))
            name = str(entry.get("name") or labels.get("method"))
            settings = {**base, **{k: v for k, v in labels.items() if k not in parameters}}
            settings |= {key: value for key, value in added.items() if key not in parameters}
            every.append(Case(name, labels | {k: v for k, v in added.items() if k in labels}, settings))
    rules = [{str(key): values_of(value) for key, value in rule.items()} for rule in excluded]
    for number, rule in enumerate(rules, 1):
        unknown = absent_values(every, rule, "exclude")
        if not unknown and not any(_excludes(rule, case) for case in every):
            unknown = [f"exclude: entry {number} removes nothing: no case has all that it names; leave it out"]
        faults += unknown
    return [case for case in every if not any(_excludes(rule, case) for rule in rules)]


def _excludes(rule: Mapping[str, list[str]], case: Case) -> bool:
    return all(case.label(key) in allowed for key, allowed in rule.items())


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


def repeated(cases: Sequence[Case]) -> list[str]:
    """The cases, in words, that are there more than once."""
    counts = Counter(" ".join([case.name, *(f"{key}={value}" for key, value in case.labels.items())]) for case in cases)
    return [words for words, count in counts.items() if count > 1]


def _size(axes: Mapping[str, list[str]]) -> int:
    size = 1
    for values in axes.values():
        size *= len(values)
    return size


def kept(case: Case, keep: Mapping[str, list[str]]) -> bool:
    """Whether a scale keeps a case: none of its labels has another value than those named."""
    return all(case.label(key) in (None, *allowed) for key, allowed in keep.items())


def values_by_label(cases: Iterable[Case], keys: Iterable[str]) -> dict[str, list[str]]:
    """The values that labels have in some cases."""
    own = [*cases]
    return {key: [*dict.fromkeys(value for case in own if (value := case.label(key)) is not None)] for key in keys}


def values_of(value: Any) -> list[str]:
    """One value or a list of them, as text."""
    return [text(each) for each in (value if isinstance(value, list) else [value])]
