"""Which keys are settings of a run, by their names alone: nothing that they are of is imported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from commeff.experiments.config.schema import GROUPS, built_in, node
from commeff.experiments.config.settings import RUN
from commeff.experiments.reproduce.cases import Case
from commeff.require import did_you_mean


def unknown_keys(keys: Iterable[str], cases: Sequence[Case], also: Iterable[str] = ()) -> list[str]:
    """A line for each key that is no setting of any case, nor one of `also`."""
    from commeff.experiments.config.compose import SHORTHANDS

    known = {*also, *RUN, *SHORTHANDS, *GROUPS}
    faults = []
    for key in keys:
        if key in known:
            continue
        group, _, rest = key.partition(".")
        own = _keys_of(group, cases) if group in GROUPS and rest else set()
        if own is not None and f"{group}.{rest.split('.')[0]}" not in own:
            faults.append(f"unknown key {key!r}{did_you_mean(key, [*known, *own])}")
    return faults


def _keys_of(group: str, cases: Sequence[Case]) -> set[str] | None:
    """The keys of the parts that cases name, of all there are where one names none; None where a part is not ours."""
    named = {case.settings.get(group) for case in cases}
    ours = built_in(group)
    if not named <= {*ours, None}:
        return None
    chosen = ours if None in named else [str(name) for name in named if name]
    return {f"{group}.{key}" for name in chosen for key in node(group, name) if key[0] != "_"}


def draws_topology(case: Case) -> bool:
    """Whether its topology, or one inside that, takes a seed: another seed, another graph."""
    ours = built_in("topology")
    named = [value for key, value in case.settings.items() if key.split(".")[0] == "topology"]
    return any("seed" in node("topology", str(name)) for name in named if name in ours)
