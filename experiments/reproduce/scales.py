"""A table at each of its scales: the cases and seeds that stay. All are read, whichever is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commeff.experiments.reproduce.cases import Case, Setting, absent_values, kept, read_cases, repeated
from commeff.experiments.reproduce.sections import read_keep, read_scales, read_seeds, read_settings
from commeff.experiments.reproduce.settable import draws_topology, unknown_keys

EXACT = ("consensus", "modelled")  # no seed changes these, unless it draws the topology, or when a method sends


@dataclass(frozen=True)
class ScaledCases:
    """What a scale runs: its cases, with which seeds; `all_seeds` are those of the whole table."""

    cases: Sequence[Case]
    seeds: Sequence[int]
    all_seeds: Sequence[int]


def read_scaled(
    raw: Mapping[str, Any],
    scale: str,
    base: Mapping[str, Setting],
    given: Mapping[str, str],
    parameters: list[str],
    measure: str,
    faults: list[str],
) -> tuple[list[Case], dict[str, ScaledCases]]:
    """The cases of the whole table, and what each scale runs; `given` are settings of the command."""
    whole = read_cases(raw.get("grid"), base, {}, parameters, faults)
    faults += [f"grid has {words} twice; keep one" for words in repeated(whole)]
    found = {}
    for name, own in read_scales(raw, scale, faults).items():
        rest = {key: value for key, value in own.items() if key not in ("seeds", "keep")}
        keep, changed = read_keep(own, faults), read_settings(rest, f"scales.{name}", faults)
        every = read_cases(raw.get("grid"), base, {**changed, **given}, parameters, [])
        faults += [f"scales.{name}: {fault}" for fault in unknown_keys(changed, every, parameters)]
        faults += absent_values(every, keep, f"scales.{name}: keep") if every else []
        cases = [case for case in every if kept(case, keep)]
        if every and not cases:
            faults.append(f"scale {name} keeps no case; change its `keep`")
        if not repeated(whole):
            why = "it sets what the grid sweeps; choose a value of the grid by `keep`"
            faults += [f"scales.{name} makes two cases {words}: {why}" for words in repeated(cases)]
        exact = no_seed_changes(measure, cases)
        found[name] = ScaledCases(cases, *read_seeds(raw, own, name, exact, faults))
    return whole, found


def no_seed_changes(measure: str, cases: Sequence[Case]) -> bool:
    """Whether what is measured counts as the same with every seed: one seed is enough then, and has no interval."""
    return measure in EXACT and not any(map(draws_topology, cases))
