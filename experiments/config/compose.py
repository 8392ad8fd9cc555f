"""The configuration of one run, composed here, once; the result is a plain dict, closed and resolved.

    compose(["method=choco", "compressor=top_k", "compressor.ratio=0.01", "workers=16"])

Closed: a key that no part has, a choice that no group has, and values of the wrong type are refused, all of them at
once, each in one line with what to write instead. Nothing is built and nothing is written here.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from commeff.experiments.config import schema
from commeff.experiments.config.meshes import mesh_faults, mesh_size, with_mesh
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.registry import locate, split
from commeff.experiments.config.schema import GROUPS, OPTIONAL, ConfigError, built_in, node, plain, takes
from commeff.experiments.config.selection import FOLLOWS, MISSING, Selection, select
from commeff.experiments.config.settings import (
    RUN,
    TRACES,
    attack_faults,
    participation_faults,
    read_trace,
    speed_faults,
)
from commeff.experiments.config.signature import is_written
from commeff.experiments.sinks import unavailable
from commeff.require import did_you_mean

SHORTHANDS = {"model": "task.model"}

# Alone, defaults always fit.
MESHED = {"mesh", "micro_batches", "recompute", "zero", "precision", "sequence", "pieces", "compile"}

FREE = ("topology.n",)  # follows like others, but a topology between nodes of several workers is set by hand

REFERENCE = re.compile(r"\$\{[\w.]+\}")  # to another key; functions (oc.env) are for the files of this package


def compose(
    tokens: Sequence[str], plugins: Sequence[Choice] = (), unfinished: bool = False, settled: bool = True
) -> dict[str, Any]:
    """The resolved configuration that `key=value` tokens describe.

    Groups that the method does not use are left out; its references to the others stay references ("${compressor}").

    Parameters
    ----------
    tokens : settings, the last of equal keys counts.
    plugins : choices beside the built-in ones.
    unfinished : let keys that have no default and no value be "???" instead of faults, for commands that only show.
    settled : resolve what depends on the files of this machine, for which the task has to be imported.

    Raises
    ------
    ConfigError : with everything that is wrong with the tokens, a line each.

    Examples
    --------
    >>> config = compose(["method=choco", "compressor=top_k", "compressor.ratio=0.01", "workers=16"])
    >>> config["compressor"]["ratio"], config["method"]["compressor"]
    (0.01, '${compressor}')
    """
    faults: list[str] = []
    values, signed = _parse(tokens, faults)
    chosen, unknown = _choose(values, plugins, faults)
    raw, used, leaves, places = chosen.raw, chosen.used, chosen.leaves, chosen.places
    names = [*(key for key, value in leaves.items() if value not in FOLLOWS or key in FREE), *places]
    faults += [
        f"{token!r}: keys are neither added nor removed{did_you_mean(key, names)}" for token, key in signed.items()
    ]
    good: dict[str, Any] = {}
    for key, value in values.items():
        group = _part(key)
        if group in unknown or (key in places and group in used) or ("method" in unknown and group in OPTIONAL):
            continue
        if group in GROUPS and group not in used:
            faults.append(_takes_none(raw["method"], group, key))
        elif key not in leaves:
            faults.append(f"unknown key {key!r}{did_you_mean(key, names) or '; `commeff show` prints those there are'}")
        elif leaves[key] in FOLLOWS and key not in FREE:
            source = leaves[key][2:-1]
            faults.append(f"{key} follows {source}; set {source}=... instead")
        elif (fault := _fault(raw, key, value)) is not None:
            faults.append(fault)
        else:
            good[key] = value
    missing = [key for key, value in leaves.items() if value == MISSING and key not in values and _part(key) in used]
    faults += [f"{key} has no default; set {key}=..." for key in missing if not unfinished]
    meshed = not MESHED.isdisjoint(map(_part, good))
    resolved, unresolved = chosen.resolve(with_mesh(good) if meshed else good)
    faults += unresolved + (mesh_faults(resolved) if meshed else [])
    if resolved["nproc"] > resolved["workers"] and mesh_size(resolved) == 1:
        nproc, workers = resolved["nproc"], resolved["workers"]
        faults.append(f"nproc must be at most workers={workers}, got {nproc}: each process hosts a worker or more")
    for key in TRACES:
        if isinstance(resolved[key], str):
            try:
                resolved[key] = read_trace(key, resolved[key])
            except ConfigError as error:
                faults += error.faults
                resolved[key] = "" if key == "availability" else []  # of which nothing else is wrong
    faults += participation_faults(resolved) + attack_faults(resolved) + speed_faults(resolved)
    faults += unavailable(resolved["log"]) if resolved["log"] and not unfinished else []
    if faults:
        raise ConfigError(faults)
    if not settled:
        return resolved
    origin = resolved["resume_from"]
    source = {} if origin is None else {"resume_from": str(Path(origin).expanduser().absolute())}
    return resolved | source | {"task": _settled(resolved["task"])}


def _settled(task: dict[str, Any]) -> dict[str, Any]:
    """The settings of a task; paths and names that depend on where the command is typed are resolved here."""
    if is_written(task["_target_"], "Settled") is False:
        return task
    from commeff.experiments.tasks.settled import Settled  # with torch, when all else is right

    kind = locate(task["_target_"])
    return kind.settled(task) if inspect.isclass(kind) and issubclass(kind, Settled) else task


def _part(key: str) -> str:
    return key.split(".")[0]


def _parse(tokens: Sequence[str], faults: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Keys and values, the last of equal keys counts; and the tokens that begin with + or ~, with their keys."""
    values: dict[str, Any] = {}
    signed: dict[str, str] = {}
    for token in tokens:
        key, equals, text = token.partition("=")
        if token[:1] in ("+", "~"):
            signed[token] = key.lstrip("+~")
            continue
        if not equals or not key:
            faults.append(f"{token!r} is no setting; write key=value")
            continue
        override = _override(text)
        if override.is_sweep_override():
            faults.append(
                f"{token!r} asks for several runs, a run has one value; in a grid file `commeff grid` sweeps lists"
            )
            continue
        values[SHORTHANDS.get(key, key)] = override.value()
    if schema.fits(values.get("schedule"), RUN["mesh.schedule"].hint):  # not one of rates
        values["mesh.schedule"] = values.pop("schedule")
    return values, signed


@lru_cache(maxsize=4096)
def _override(text: str) -> Override:
    """Parse a value as hydra does; text outside its grammar is plain text."""
    parser = OverridesParser.create()
    try:
        return parser.parse_override(f"key={text}")
    except HydraException:
        quoted = text.replace("\\", "\\\\").replace("'", "\\'")
        return parser.parse_override(f"key='{quoted}'")


def _choose(values: Mapping[str, Any], plugins: Sequence[Choice], faults: list[str]) -> tuple[Selection, set[str]]:
    """Compose the chosen parts; and the groups with an unknown choice."""
    chosen: dict[str, str] = {}
    broken: set[str] = set()
    places: Mapping[str, str] = {group: group for group in GROUPS}
    while True:
        choices = {place: str(values[place]) for place in places if place in values and place not in chosen}
        for place, name in choices.items():
            names = built_in(places[place]) + [p.name for p in plugins if p.group == places[place]]
            match = next((n for n in names if plain(n) == plain(name)), None)
            if match is None:
                orders = get_args(RUN["mesh.schedule"].hint) if place == "schedule" else ()
                of_pipelines = f", or for a pipeline from {', '.join(orders)}" if orders else ""
                meant = did_you_mean(name, [*names, *orders])
                of_plugins = "" if plugins else "; one of your own needs --plugin FILE"
                names_of_all = f"{', '.join(names)}{of_pipelines}{of_plugins}"
                faults.append(f"no {places[place]} {name!r}{meant}; choose from {names_of_all}")
                broken.add(place.split(".")[0])
            chosen[place] = match or ""
        selection = select(tuple((place, chosen[place]) for place in places if chosen.get(place)), tuple(plugins))
        places = selection.places
        if not any(place in values and place not in chosen for place in places):
            return selection, broken


def _takes_none(method: Mapping[str, Any], group: str, key: str) -> str:
    takers = [name for name in built_in("method") if group in takes(node("method", name))]
    name = split(method["_target_"])[1]
    return f"method {name} takes no {group}; drop {key}=... or choose a method that does: {', '.join(takers)}"


def _fault(raw: Mapping[str, Any], key: str, value: Any) -> str | None:
    """Why a key cannot have a value."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{key} must be finite, got {value}"
    if "${" in REFERENCE.sub("", str(value)):
        return f"{key} must be a value or a reference such as ${{workers}}, got {str(value)!r}: settings call nothing"
    if key in RUN:
        _, hint, least, most = RUN[key]
        if not schema.fits(value, hint):
            return f"{key} must be {schema.words(hint)}, got {value!r}"
        if isinstance(value, (int, float)) and not least <= value < (2**63 if most is None else most + 1):
            upper = "less than 2^63" if most is None else f"at most {most:,}"
            return f"{key} must be at least {least} and {upper}, got {value:,}"
        return None
    *parts, name = key.split(".")
    holder = raw
    for part in parts:
        holder = holder[part]
    needed = schema.misfit(holder["_target_"], name, value)
    return f"{key} must be {needed}, got {value!r}" if needed else None
