"""From a run's configuration back to the settings that make it: `method=choco compressor=qsgd steps=100`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from commeff.experiments.config.schema import GROUPS, built_in, node, version
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.run.naming import IRRELEVANT

ALWAYS = ("method", "task")  # parts that a command names even where they are the default
RUN_KEYS = ("workers", "steps", "seed")  # at the end of a command
ANY_SEED = 1_234_567_891  # that nobody takes


def settings_of(config: Mapping[str, Any]) -> list[str] | None:
    """The few settings that lead to a resolved configuration; None where they cannot be told (plug-ins, nested parts).

    Keys that a configuration of an older version does not have are left at their defaults.

    >>> from commeff.experiments.config.compose import compose
    >>> settings_of(compose(["method=choco", "optimizer.lr=0.5", "seed=3"]))
    ['method=choco', 'task=digits', 'optimizer.lr=0.5', 'workers=16', 'steps=400', 'seed=3']
    """
    seed = config.get("seed")
    try:
        settings = _settings_of(json.dumps(_at_seed(config, seed) | {"seed": ANY_SEED}))
    except TypeError:  # it holds what no configuration holds
        return None
    return None if settings is None or seed is None else [*settings[:-1], f"seed={seed}"]


def _at_seed(node: Mapping[str, Any], seed: Any) -> dict[str, Any]:
    """A configuration with `ANY_SEED` for its seed: runs that differ in nothing else have one command, but for that."""
    return {
        name: _at_seed(value, seed)
        if isinstance(value, Mapping)
        else ANY_SEED
        if name == "seed" and value == seed
        else value
        for name, value in node.items()
    }


@lru_cache(maxsize=10_000)
def _settings_of(as_json: str) -> tuple[str, ...] | None:
    from commeff.experiments.config.compose import compose

    config = json.loads(as_json)
    try:
        chosen = {group: _choice(group, config[group]) for group in GROUPS if group in config}
        numbers = [f"{key}={config[key]}" for key in RUN_KEYS]
        parts = [f"{group}={chosen[group]}" for group in ALWAYS]
        default = compose([*parts, *numbers])
        parts += [
            f"{group}={name}"
            for group, name in chosen.items()
            if group not in ALWAYS and default[group]["_target_"] != config[group]["_target_"]
        ]
        usual, leaves = dict(_leaves(compose([*parts, *numbers]))), dict(_leaves(config))
        other = [f"{key}={text(value)}" for key, value in leaves.items() if usual.get(key) != value]
        settings = [*parts, *other, *numbers]
        again = compose(settings)
        reached, same = dict(_leaves(again)), version(again["method"]) == version(config["method"])
        return tuple(settings) if same and all(reached.get(key) == value for key, value in leaves.items()) else None
    except (ValueError, KeyError, TypeError, AttributeError):  # whatever stands in a configuration of somebody else's
        return None


def _choice(group: str, part: Mapping[str, Any]) -> str:
    """The choice that makes a part; of several (sgd, nesterov) the one whose own values it keeps most of."""
    nodes = {name: node(group, name) for name in built_in(group)}
    matches = {
        name: sum(part.get(key) == value for key, value in choice.items())
        for name, choice in nodes.items()
        if choice["_target_"] == part["_target_"]
    }
    if not matches:
        raise KeyError(part["_target_"])
    return max(matches, key=lambda name: matches[name])


def _leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that decides the result by its dotted key; references to other parts are the method's own affair."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif name not in IRRELEVANT and not str(value).startswith("${") and prefix + name not in RUN_KEYS:
            yield f"{prefix}{name}", value
