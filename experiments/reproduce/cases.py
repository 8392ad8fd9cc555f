"""The cases of a table: the combinations of every entry of its grid, and which of them stay at each of its scales.

All scales are read, whichever is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from commeff.experiments.config.schema import GROUPS, built_in, node
from commeff.experiments.config.settings import RUN
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.reproduce.reading import TableError, check_keys, check_one_of
from commeff.require import did_you_mean

MOST_CASES = 2_000
SCALES = ("smoke", "reduced", "full")
SMOKE = {"steps": 10, "evaluate_every": 5}  # of a table that does not say
EXACT = ("consensus", "modelled")  # no seed changes these, unless it draws the topology, or when a method sends
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
        return next((label for label in self.labels if label.endswith(f".{key}")), key)

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


def read_cases(raw: Mapping[str, Any], added: Mapping[str, Setting]) -> list[Case]:
    """The combinations of every entry of the grid of a file; `added` overrides settings."""
    entries, parameters = raw.get("grid"), raw.get("parameters", ())
    base = read_settings(raw.get("base", {}), "base")
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise TableError('grid must be a list of settings, such as [{"name": "psgd", "method": "psgd"}]')
    axes = [{str(k): values_of(v) for k, v in entry.items() if k != "name"} for entry in entries]
    if sum(prod(map(len, axis.values())) for axis in axes) > MOST_CASES:
        raise TableError(f"grid must have at most {MOST_CASES:,} cases, got more; sweep less")
    every = []
    for number, (entry, axis) in enumerate(zip(entries, axes, strict=True), 1):
        if empty := [key for key, values in axis.items() if not values]:
            raise TableError(f"grid: entry {number}: {empty[0]} has no values")
        if "name" not in entry and "method" not in axis:
            raise TableError(f"grid: entry {number} has no name, by which claims call it; add a name")
        for values in product(*axis.values()):
            labels = dict(zip(axis, values, strict=True))
            name = str(entry.get("name") or in_words(labels.get("method", "")))
            settings = {**base, **{k: v for k, v in {**labels, **added}.items() if k not in parameters}}
            labels |= {k: v for k, v in added.items() if k in labels}
            every.append(Case(name, {key: in_words(value) for key, value in labels.items()}, settings))
    return every


def values_of(value: Any) -> list[Setting]:
    """One value or a list of them."""
    return [setting(item) for item in (value if isinstance(value, list) else [value])]


def number_in(words: str) -> float | str:
    """The number that words are, or the words.

    >>> number_in("1e-1"), number_in("ring")
    (0.1, 'ring')
    """
    try:
        return float(words)
    except ValueError:
        return words


def labels_of(cases: Iterable[Case]) -> list[str]:
    """The labels that some case has."""
    return [*dict.fromkeys(label for case in cases for label in case.labels)]


def values_in(cases: Iterable[Case], key: str) -> list[str]:
    """The values that a label has in some cases."""
    return [*dict.fromkeys(value for case in cases if (value := case.label(key)) is not None)]


def repeated(cases: Sequence[Case]) -> list[str]:
    """The cases, in words, that occur more than once."""
    counts = Counter(f"{case.name} {listing(case.labels)}" for case in cases)
    return [words for words, count in counts.items() if count > 1]


def check_label(cases: Sequence[Case], key: str, part: str = "") -> None:
    """Refuse a label that no case has; `part` is where a table says so."""
    if not values_in(cases, key):
        known = labels_of(cases)
        raise TableError(f"{part}{key!r} is no label of the grid{did_you_mean(key, known)}; it has {', '.join(known)}")


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
    variant_cases = [case for case in cases if case.name == name]
    if not any(case.has(where) for case in variant_cases):
        known = "; ".join(f"{key}: {', '.join(values_in(variant_cases, key))}" for key in where)
        raise TableError(f"{part}no case of {name} has {listing(where, ', ')}; there are {known}")


def scales_of(raw: Mapping[str, Any]) -> list[str]:
    """The scales at which a table runs."""
    return [scale for scale in SCALES if scale != "reduced" or scale in raw.get("scales", {})]


def read_scales(
    raw: Mapping[str, Any], scale: str, added: Mapping[str, Setting]
) -> dict[str, tuple[list[Case], list[int]]]:
    """The cases and seeds of each scale: those that the file names, full, and the one that is asked for.

    Parameters
    ----------
    raw : what the file says.
    scale : that is asked for.
    added : settings of the command.
    """
    scales = raw.get("scales") or {}
    if not all(isinstance(content, dict) for content in scales.values()):
        raise TableError(f'scales must be as {{"smoke": {{"steps": 10}}}}, got {scales!r}')
    check_keys("scales", scales, SCALES)
    check_one_of(SCALES, **{"--scale": scale})
    if scale not in scales_of(raw):
        raise TableError("there is no scale reduced; it runs at --scale full, and smoke")
    results = {}
    for name in SCALES:
        if name in scales or name in ("full", scale):
            content = dict(scales.get(name) or (SMOKE if name == "smoke" else {}))
            keep, seeds = content.pop("keep", {}), content.pop("seeds", None)
            changed = read_settings(content, f"scales.{name}")
            every = read_cases(raw, {**changed, **added})
            check_settings(changed, every, f"scales.{name}: ", raw.get("parameters", ()))
            cases = _stay(every, keep, name)
            results[name] = cases, _seeds(raw, seeds, name, no_seed_changes(raw.get("measure", ""), cases))
    return results


def _stay(cases: Sequence[Case], node: Any, scale: str) -> list[Case]:
    """The cases none of whose labels has another value than those that a scale keeps."""
    if not isinstance(node, dict):
        raise TableError(f'keep must hold labels and the values that stay, such as {{"workers": [4, 8]}}, got {node!r}')
    keep = {str(key): [in_words(item) for item in values_of(value)] for key, value in node.items()}
    for key, values in keep.items():
        check_label(cases, key, f"scales.{scale}: keep: ")
        known = values_in(cases, key)
        if absent := [value for value in values if value not in known]:
            raise TableError(f"scales.{scale}: keep: no case has {key}={absent[0]}; there are {', '.join(known)}")
    selected = [case for case in cases if all(case.label(key) in (None, *values) for key, values in keep.items())]
    if not selected:
        raise TableError(f"scale {scale} keeps no case; change its `keep`")
    if twice := repeated(selected):
        why = "it sets what the grid sweeps; choose a value of the grid by `keep`"
        raise TableError(f"scales.{scale} makes two cases {twice[0]}: {why}")
    return selected


def are_seeds(node: Any) -> bool:
    """Whether it is a list of different whole numbers.

    >>> are_seeds([0, 1]), are_seeds([0, 0]), are_seeds([]), are_seeds([True]), are_seeds("01")
    (True, False, False, False, False)
    """
    whole = isinstance(node, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in node)
    return whole and bool(node) and len(set(node)) == len(node)


def table_seeds(raw: Mapping[str, Any], exact: bool) -> list[int]:
    """All seeds of a table; `exact`: no seed changes what is measured."""
    seeds = raw.get("seeds", [0] if exact else [0, 1, 2])
    if not are_seeds(seeds):
        raise TableError(f"seeds must be a list of different whole numbers, such as [0, 1, 2], got {seeds!r}")
    return list(seeds)


def _seeds(raw: Mapping[str, Any], chosen: Any, scale: str, exact: bool) -> list[int]:
    """The seeds of a scale: those that it chooses, of smoke the first."""
    every = table_seeds(raw, exact)
    seeds = chosen if chosen is not None else every[:1] if scale == "smoke" else every
    if not are_seeds(seeds) or not set(seeds) <= set(every):
        raise TableError(f"the seeds of scale {scale} must be among {every}, got {seeds!r}")
    if scale != "smoke" and len(seeds) < 3 and not exact:
        raise TableError(f"at least 3 seeds are needed at scale {scale}, got {seeds}: fewer cannot tell")
    return list(seeds)


def no_seed_changes(measure: str, cases: Sequence[Case]) -> bool:
    """Whether what is measured counts as the same with every seed: one seed is enough then, and has no interval."""
    return measure in EXACT and not any(map(_draws_topology, cases))


def _draws_topology(case: Case) -> bool:
    """Whether its topology, or one inside that, takes a seed: another seed, another graph."""
    built_ins = built_in("topology")
    named = [value for key, value in case.settings.items() if key.split(".")[0] == "topology"]
    plugin = case.settings.get("topology", "ring") not in built_ins  # a plug-in's may
    return plugin or any("seed" in node("topology", str(name)) for name in named if name in built_ins)


def check_settings(keys: Iterable[str], cases: Sequence[Case], part: str, also: Iterable[str] = ()) -> None:
    """Refuse a key that is no setting of any case, nor one of `also`; nothing that it is of is imported."""
    from commeff.experiments.config.compose import SHORTHANDS

    known = {*also, *RUN, *SHORTHANDS, *GROUPS}
    for key in keys:
        if key in known:
            continue
        group, _, rest = key.partition(".")
        group_keys = _keys_of(group, cases) if group in GROUPS and rest else set()
        if group_keys is not None and f"{group}.{rest.split('.')[0]}" not in group_keys:
            raise TableError(f"{part}unknown key {key!r}{did_you_mean(key, [*known, *group_keys])}")


def _keys_of(group: str, cases: Sequence[Case]) -> set[str] | None:
    """The keys of the parts that cases name, of all there are where one names none; None where a part is not ours."""
    named = {case.settings.get(group) for case in cases}
    built_ins = built_in(group)
    if not named <= {*built_ins, None}:
        return None
    chosen = built_ins if None in named else [str(name) for name in named if name]
    return {f"{group}.{key}" for name in chosen for key in node(group, name) if key[0] != "_"}
