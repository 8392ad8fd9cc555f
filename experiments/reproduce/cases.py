"""The cases of a table: the combinations of every entry of its grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from commeff.experiments.grid.plan.spec import text
from commeff.experiments.reproduce.reading import TableError
from commeff.require import did_you_mean

MOST_CASES = 2_000
Setting = str | Callable[[Any], Any]  # a function of the case gives its value


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


def listing(where: Mapping[str, str], between: str = " ") -> str:
    """Labels, or settings, in words."""
    return between.join(f"{key}={value}" for key, value in where.items())


def read_settings(node: Any, part: str) -> dict[str, Setting]:
    """The settings of a part of a table."""
    if not isinstance(node, dict) or any(isinstance(value, dict) for value in node.values()):
        raise TableError(f'{part} must hold settings with dotted keys, such as "task.batch": 8, got {node!r}')
    return {str(key): setting(value) for key, value in node.items()}


def read_cases(
    entries: Any, base: Mapping[str, Setting], added: Mapping[str, Setting], parameters: Sequence[str]
) -> list[Case]:
    """The combinations of every entry of the grid; `added` overrides settings."""
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise TableError('grid must be a list of settings, such as [{"name": "psgd", "method": "psgd"}]')
    axes = [{str(k): values_of(v) for k, v in entry.items() if k != "name"} for entry in entries]
    if sum(prod(map(len, each.values())) for each in axes) > MOST_CASES:
        raise TableError(f"grid must have at most {MOST_CASES:,} cases, got more; sweep less")
    every = []
    for number, (entry, own) in enumerate(zip(entries, axes, strict=True), 1):
        if empty := [key for key, values in own.items() if not values]:
            raise TableError(f"grid: entry {number}: {empty[0]} has no values")
        if "name" not in entry and "method" not in own:
            raise TableError(f"grid: entry {number} has no name, by which claims call it; add a name")
        for values in product(*own.values()):
            labels = dict(zip(own, values, strict=True))
            name = str(entry.get("name") or in_words(labels.get("method", "")))
            settings = {**base, **{k: v for k, v in {**labels, **added}.items() if k not in parameters}}
            labels |= {k: v for k, v in added.items() if k in labels}
            every.append(Case(name, {key: in_words(value) for key, value in labels.items()}, settings))
    return every


def values_of(value: Any) -> list[Setting]:
    """One value or a list of them."""
    return [setting(each) for each in (value if isinstance(value, list) else [value])]


def values_in(cases: Iterable[Case], key: str) -> list[str]:
    """The values that a label has in some cases."""
    return [*dict.fromkeys(value for case in cases if (value := case.label(key)) is not None)]


def repeated(cases: Sequence[Case]) -> list[str]:
    """The cases, in words, that are there more than once."""
    counts = Counter(f"{case.name} {listing(case.labels)}" for case in cases)
    return [words for words, count in counts.items() if count > 1]


def check_label(cases: Sequence[Case], key: str, part: str = "") -> None:
    """Refuse a label that no case has; `part` is where a table says so."""
    if not values_in(cases, key):
        labels = dict.fromkeys(label for case in cases for label in case.labels)
        near = did_you_mean(key, labels)
        raise TableError(f"{part}{key!r} is no label of the grid{near}; it has {', '.join(labels)}")


def check_variant(cases: Sequence[Case], name: str, part: str = "") -> None:
    """Refuse a variant that no case is of."""
    names = values_in(cases, "name")
    if name not in names:
        raise TableError(f"{part}no variant {name!r}{did_you_mean(name, names)}; there are {', '.join(names)}")


def check_place(cases: Sequence[Case], name: str, where: Mapping[str, str], part: str = "") -> None:
    """Refuse a variant, or labels by which cases of it are picked, where there is no such case."""
    check_variant(cases, name, part)
    for key in where:
        check_label(cases, key, part)
    own = [case for case in cases if case.name == name]
    if not any(case.has(where) for case in own):
        known = "; ".join(f"{key}: {', '.join(values_in(own, key))}" for key in where)
        raise TableError(f"{part}no case of {name} has {listing(where, ', ')}; there are {known}")
