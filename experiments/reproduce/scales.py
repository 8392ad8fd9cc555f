"""A table at each of its scales: the cases and seeds that stay. All are read, whichever is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commeff.experiments.config.schema import GROUPS, built_in, node
from commeff.experiments.config.settings import RUN
from commeff.experiments.reproduce.cases import (
    Case,
    Setting,
    check_label,
    in_words,
    read_cases,
    read_settings,
    repeated,
    values_in,
    values_of,
)
from commeff.experiments.reproduce.reading import TableError, check_keys, check_one_of
from commeff.require import did_you_mean

SCALES = ("smoke", "reduced", "full")
SMOKE = {"steps": 10, "evaluate_every": 5}  # of a table that does not say
EXACT = ("consensus", "modelled")  # no seed changes these, unless it draws the topology, or when a method sends


@dataclass(frozen=True)
class ScaledCases:
    """What a scale runs: its cases, and with which seeds."""

    cases: Sequence[Case]
    seeds: Sequence[int]


def scales_of(raw: Mapping[str, Any]) -> list[str]:
    """The scales at which a table runs."""
    return [scale for scale in SCALES if scale != "reduced" or scale in raw.get("scales", {})]


def read_scales(
    raw: Mapping[str, Any],
    scale: str,
    base: Mapping[str, Setting],
    added: Mapping[str, Setting],
    parameters: Sequence[str],
    measure: str,
) -> dict[str, ScaledCases]:
    """What each scale runs: those that the file names, full, and the one that is asked for.

    Parameters
    ----------
    raw : what the file says.
    scale : that is asked for.
    base : settings of all cases.
    added : settings of the command.
    parameters : labels that are no settings.
    measure : what is measured of a case.
    """
    scales = raw.get("scales") or {}
    if not all(isinstance(own, dict) for own in scales.values()):
        raise TableError(f'scales must be as {{"smoke": {{"steps": 10}}}}, got {scales!r}')
    check_keys("scales", scales, SCALES)
    check_one_of(SCALES, **{"--scale": scale})
    if scale not in scales_of(raw):
        raise TableError("there is no scale reduced; it runs at --scale full, and smoke")
    found = {}
    for name in SCALES:
        if name in scales or name in ("full", scale):
            own = dict(scales.get(name) or (SMOKE if name == "smoke" else {}))
            keep, seeds = read_keep(own.pop("keep", {})), own.pop("seeds", None)
            changed = read_settings(own, f"scales.{name}")
            every = read_cases(raw.get("grid"), base, {**changed, **added}, parameters)
            check_settings(changed, every, f"scales.{name}: ", parameters)
            cases = _stay(every, keep, name)
            found[name] = ScaledCases(cases, _seeds(raw, seeds, name, no_seed_changes(measure, cases)))
    return found


def read_keep(keep: Any) -> dict[str, list[str]]:
    """Of each label, the values that a scale keeps."""
    if not isinstance(keep, dict):
        raise TableError(f'keep must hold labels and the values that stay, such as {{"workers": [4, 8]}}, got {keep!r}')
    return {str(key): [in_words(each) for each in values_of(value)] for key, value in keep.items()}


def _stay(cases: Sequence[Case], keep: Mapping[str, Sequence[str]], scale: str) -> list[Case]:
    """The cases none of whose labels has another value than those that a scale keeps."""
    for key, values in keep.items():
        check_label(cases, key, f"scales.{scale}: keep: ")
        known = values_in(cases, key)
        if absent := [value for value in values if value not in known]:
            known_values = ", ".join(known)
            raise TableError(f"scales.{scale}: keep: no case has {key}={absent[0]}; there are {known_values}")
    found = [case for case in cases if all(case.label(key) in (None, *values) for key, values in keep.items())]
    if not found:
        raise TableError(f"scale {scale} keeps no case; change its `keep`")
    if twice := repeated(found):
        why = "it sets what the grid sweeps; choose a value of the grid by `keep`"
        raise TableError(f"scales.{scale} makes two cases {twice[0]}: {why}")
    return found


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
    ours = built_in("topology")
    named = [value for key, value in case.settings.items() if key.split(".")[0] == "topology"]
    return any("seed" in node("topology", str(name)) for name in named if name in ours)


def check_settings(keys: Iterable[str], cases: Sequence[Case], part: str, also: Iterable[str] = ()) -> None:
    """Refuse a key that is no setting of any case, nor one of `also`; nothing that it is of is imported."""
    from commeff.experiments.config.compose import SHORTHANDS

    known = {*also, *RUN, *SHORTHANDS, *GROUPS}
    for key in keys:
        if key in known:
            continue
        group, _, rest = key.partition(".")
        own = _keys_of(group, cases) if group in GROUPS and rest else set()
        if own is not None and f"{group}.{rest.split('.')[0]}" not in own:
            raise TableError(f"{part}unknown key {key!r}{did_you_mean(key, [*known, *own])}")


def _keys_of(group: str, cases: Sequence[Case]) -> set[str] | None:
    """The keys of the parts that cases name, of all there are where one names none; None where a part is not ours."""
    named = {case.settings.get(group) for case in cases}
    ours = built_in(group)
    if not named <= {*ours, None}:
        return None
    chosen = ours if None in named else [str(name) for name in named if name]
    return {f"{group}.{key}" for name in chosen for key in node(group, name) if key[0] != "_"}
