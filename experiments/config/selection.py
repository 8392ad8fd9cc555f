"""A choice of parts, composed by hydra once, and its references resolved: what the cells of a grid share.

A grid of thousands of cells has few choices of parts, and few values that others refer to (`${workers}`, `${seed}`);
the rest, such as a learning rate, is put in without hydra.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import GROUPS, OPTIONAL, takes

FOLLOWS = ("${optimizer}", "${compressor}", "${topology}", "${workers}")  # keys with these values are not set by hand
REMEMBERED = 1000  # resolutions of a selection


@dataclass(frozen=True, eq=False)
class Selection:
    """The configuration that a choice of parts has before any setting.

    Attributes
    ----------
    config : as hydra has composed it; never written.
    places : {where a part stands: its group}.
    """

    config: DictConfig
    places: Mapping[str, str]
    raw: dict[str, Any] = field(init=False, repr=False)
    leaves: Mapping[str, Any] = field(init=False, repr=False)  # dotted keys, with their raw values
    used: Sequence[str] = field(init=False)  # the groups
    _words: frozenset[str] = field(init=False, repr=False)  # of all values that refer to others
    _resolutions: dict[str, tuple[dict[str, Any], list[str]]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        raw: Any = OmegaConf.to_container(self.config, resolve=False)
        leaves = dict(_leaves(raw))
        whole = {f"method.{name}" for name, value in raw["method"].items() if value in FOLLOWS}  # these stay references
        texts = [str(value) for key, value in leaves.items() if key not in whole and "${" in str(value)]
        found = {
            "raw": raw,
            "leaves": leaves,
            "used": [group for group in GROUPS if group not in OPTIONAL or group in takes(raw["method"])],
            "_words": frozenset(word for text in texts for word in re.findall(r"\w+", text)),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def resolve(self, values: Mapping[str, Any], keys: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """The parts that are used and `keys`, with all references resolved but those of the method to whole parts.

        Parameters
        ----------
        values : of dotted keys, which exist.
        keys : of the run, beside the parts.

        Returns
        -------
        resolved, faults : a line for each reference that cannot be resolved.
        """
        apart = {key: value for key, value in values.items() if self._stands_alone(key, value)}
        others = {key: value for key, value in values.items() if key not in apart}
        text = repr((others, keys))
        if text not in self._resolutions:
            if len(self._resolutions) >= REMEMBERED:
                self._resolutions.clear()
            self._resolutions[text] = self._resolve(others, keys)
        found, faults = self._resolutions[text]
        resolved = copy_tree(found)
        for key, value in apart.items():
            _put(resolved, key.split("."), value)
        return resolved, [*faults]

    def _stands_alone(self, key: str, value: Any) -> bool:
        """Whether a value refers to nothing and no other refers to it."""
        plain = value is None or isinstance(value, (bool, int, float, str))
        refers = isinstance(value, str) and ("${" in value or value == MISSING)
        return plain and not refers and self._words.isdisjoint(key.split("."))

    def _resolve(self, values: Mapping[str, Any], keys: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        config, faults = copy.deepcopy(self.config), []
        for key, value in values.items():
            try:
                OmegaConf.update(config, key, value)
            except OmegaConfBaseException as error:
                faults.append(f"{key} cannot be {value!r}: {str(error).splitlines()[0]}")
        raw: Any = OmegaConf.to_container(config["method"], resolve=False)
        references = {name: value for name, value in raw.items() if value in FOLLOWS}
        OmegaConf.update(config, "method", dict.fromkeys(references))
        resolved: dict[str, Any] = {}
        for group in self.used:
            try:
                resolved[group] = OmegaConf.to_container(config[group], resolve=True)
            except OmegaConfBaseException as error:
                faults.append(f"{group}: {str(error).splitlines()[0].split('resolving interpolation: ')[-1]}")
        return resolved | {"method": resolved["method"] | references} | {
            key: _plain(config[key]) for key in keys
        }, faults


@cache
def select(overrides: tuple[str, ...], plugins: tuple[Choice, ...]) -> Selection:
    """What hydra composes of a choice of parts, once.

    A file that chooses nothing beside itself takes the place of the default, which needs no hydra: a law holds the two
    ways equal.

    Parameters
    ----------
    overrides : `group=choice` or `group@place=choice`.
    plugins : choices beside the built-in ones.
    """
    chosen = dict(override.split("=") for override in overrides)
    if not overrides or plugins or None in [_alone(group, name) for group, name in chosen.items()]:
        return composed(overrides, plugins)
    default = select((), ())
    config = copy.deepcopy(default.config)
    for group, name in chosen.items():
        config[group] = _alone(group, name)
    return Selection(config, default.places)


def composed(overrides: Sequence[str], plugins: Sequence[Choice] = ()) -> Selection:
    """`select`, by hydra."""
    for plugin in plugins:
        ConfigStore.instance().store(group=plugin.group, name=plugin.name, node=plugin.node)
    with initialize_config_module("commeff.experiments.conf", version_base="1.3"):
        config = hydra_compose("config", list(overrides), return_hydra_config=True)
    choices = config.hydra.runtime.choices
    places = {key.split("@")[-1]: key.split("@")[0] for key in choices if not key.startswith("hydra/")}
    with open_dict(config):
        del config["hydra"]
    return Selection(config, places)


@cache
def _alone(group: str, name: str) -> DictConfig | ListConfig | None:
    """The file of a choice; None where it chooses other parts too, or where there is none."""
    file = resources.files("commeff.experiments.conf").joinpath(group, f"{name}.yaml")
    if not file.is_file():
        return None
    with file.open(encoding="utf-8") as text:
        node = OmegaConf.load(text)
    return None if "defaults" in node else node


def _plain(value: Any) -> Any:
    return OmegaConf.to_container(value, resolve=True) if isinstance(value, (DictConfig, ListConfig)) else value


def copy_tree(node: Any) -> Any:
    """A copy of nested mappings and lists."""
    if isinstance(node, dict):
        return {name: copy_tree(value) for name, value in node.items()}
    return [copy_tree(value) for value in node] if isinstance(node, list) else node


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Set a value in nested mappings; a part that is not used is not there."""
    for name in path[:-1]:
        if name not in tree:
            return
        tree = tree[name]
    tree[path[-1]] = value


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


for resolver in (_rows, _divide, _unless):
    OmegaConf.register_new_resolver(resolver.__name__[1:], resolver, replace=True)
