"""A choice of parts in their places, and what becomes of it with values: references to other keys are resolved.

${workers}, ${optimizer.lr}     another key of the run
${.k}, ${..groups}              a key beside this one, or beside the part that this one stands in
${divide:${workers},4}          a function of `FUNCTIONS`; only the tables of this package call one
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import yaml

from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import BESIDE, GROUPS, OPTIONAL, PART, node, takes
from commeff.experiments.config.settings import DEFAULTS, defaults

FOLLOWS = ("${optimizer}", "${compressor}", "${topology}", "${workers}")  # keys with these values are not set by hand
MISSING = "???"  # the value of a key without a default
INNERMOST = re.compile(r"\$\{([^${}]*)\}")


@dataclass(frozen=True, eq=False)
class Selection:
    """The configuration that a choice of parts has before any setting.

    Attributes
    ----------
    raw : the whole tree; never written.
    places : {where a part stands: its group}.
    """

    raw: dict[str, Any]
    places: Mapping[str, str]

    @cached_property
    def leaves(self) -> Mapping[str, Any]:
        """Dotted keys, with their raw values."""
        return dict(_leaves(self.raw))

    @cached_property
    def used(self) -> Sequence[str]:
        """The groups whose parts are of use to the method."""
        return [group for group in GROUPS if group not in OPTIONAL or group in takes(self.raw["method"])]

    def resolve(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The parts that are used and the keys of the run, with all references resolved but those of the method to
        whole parts.

        Parameters
        ----------
        values : of dotted keys, which exist.

        Returns
        -------
        resolved, faults : a line for each part with a reference that cannot be resolved.
        """
        tree, faults = copy.deepcopy(self.raw), []
        for key, value in values.items():
            *parts, name = key.split(".")
            holder = tree
            for part in parts:
                holder = holder[part]
            holder[name] = value
        resolved: dict[str, Any] = {}
        for name in (*self.used, *(key for key in tree if key not in GROUPS)):
            try:
                resolved[name] = _resolved(tree[name], (name,), tree)
            except ValueError as error:
                faults.append(f"{name}: {error}")
        return resolved, faults


def _resolved(value: Any, place: tuple[str, ...], tree: Mapping[str, Any], trail: tuple[str, ...] = ()) -> Any:
    """A value that stands at a place of the tree, without references; `trail` has the references that led here."""
    if isinstance(value, dict):
        return {name: _resolved(inner, (*place, name), tree, trail) for name, inner in value.items()}
    if isinstance(value, list):
        return [_resolved(item, place, tree, trail) for item in value]
    if not isinstance(value, str) or (place[0] == "method" and len(place) == 2 and value in FOLLOWS):
        return value
    while (match := INNERMOST.search(value)) is not None:
        reference = match[1]
        if match[0] in trail:
            raise ValueError(f"{match[0]} refers to itself")
        name, colon, words = reference.partition(":")
        if colon:
            inner = FUNCTIONS[name](*map(yaml.safe_load, words.split(",")))
        else:
            inner = _value(reference, place, tree, (*trail, match[0]))
        if match.span() == (0, len(value)):
            return inner
        text = inner if isinstance(inner, str) else yaml.safe_dump(inner, default_flow_style=True).splitlines()[0]
        value = value.replace(match[0], text)
    return value


def _value(reference: str, place: tuple[str, ...], tree: Mapping[str, Any], trail: tuple[str, ...]) -> Any:
    """The value that a reference at a place refers to."""
    key = reference.lstrip(".")
    up = len(reference) - len(key)
    target = (*(place[: len(place) - up] if up else ()), *key.split("."))
    holder: Any = tree
    for name in target:
        if not isinstance(holder, dict) or name not in holder:
            raise ValueError(f"there is no key {'.'.join(target)} for ${{{reference}}}")
        holder = holder[name]
    if holder == MISSING:
        raise ValueError(f"{'.'.join(target)} has no default for ${{{reference}}}; set it")
    return _resolved(holder, target, tree, trail)


@cache
def select(chosen: tuple[tuple[str, str], ...], plugins: tuple[Choice, ...]) -> Selection:
    """The parts of a configuration in their places; a part within a part is composed alike. Of what stands beside the
    name of such a part, another part there keeps what refers to other keys, such as the number of nodes.

    Parameters
    ----------
    chosen : places ("method", "method.outer") and the names of what stands there, where that is not the default.
    plugins : choices beside the built-in ones.
    """
    names, places = dict(chosen), dict[str, str]()
    added = {(choice.group, choice.name): choice.node for choice in plugins}

    def part(group: str, name: str, place: str) -> dict[str, Any]:
        places[place] = group
        settings = added.get((group, name)) or node(group, name)
        return {key: within(value, f"{place}.{key}") for key, value in settings.items() if key != BESIDE}

    def within(value: Any, place: str) -> Any:
        if not isinstance(value, dict) or PART not in value:
            return value
        group, default = value[PART].split("=")
        name = names.get(place, default)
        inner = part(group, name, place)
        overrides = value if name == default else {key: other for key, other in value.items() if "${" in str(other)}
        return inner | {key: other for key, other in overrides.items() if key in inner}

    method = names.get("method", DEFAULTS["method"])
    suited = DEFAULTS | (added.get(("method", method)) or node("method", method)).get(BESIDE, {}) | names
    return Selection(defaults() | {group: part(group, suited[group], group) for group in GROUPS}, places)


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key that can be set, dotted, with its raw value."""
    for name, value in node.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif not name.startswith("_"):
            yield f"{prefix}{name}", value


def _rows(workers: int) -> int:
    """The shorter side of the squarest rectangle."""
    return max(side for side in range(1, math.isqrt(workers) + 1) if workers % side == 0)


def _divide(whole: int, part: int) -> int:
    if part < 1 or whole % part:
        raise ValueError(f"{whole} workers cannot be dealt into {part} equal rows or groups; choose a divisor")
    return whole // part


def _unless(value: Any, default: Any) -> Any:
    """A default that counts only where another key is not set."""
    return default if value is None else None


FUNCTIONS: Mapping[str, Callable[..., Any]] = {"rows": _rows, "divide": _divide, "unless": _unless}
