"""The groups of the configuration, and the choices that its YAML files offer."""

from __future__ import annotations

import copy
from functools import cache
from importlib import resources
from typing import Any

import yaml

GROUPS = ("task", "method", "compressor", "topology", "optimizer", "schedule")
OPTIONAL = ("compressor", "topology")  # for methods that refer to them


def built_in(group: str) -> list[str]:
    """The choices of a group.

    >>> built_in("optimizer")
    ['adam', 'adamw', 'nesterov', 'sgd']
    """
    return [*_names(group)]


def node(group: str, name: str) -> dict[str, Any]:
    """The YAML file of a choice, as it is written."""
    return copy.deepcopy(_read(group, name))


@cache
def _names(group: str) -> tuple[str, ...]:
    files = resources.files("commeff.experiments.conf").joinpath(group).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


@cache
def _read(group: str, name: str) -> dict[str, Any]:
    text = resources.files("commeff.experiments.conf").joinpath(group, f"{name}.yaml").read_text(encoding="utf-8")
    tree: dict[str, Any] = yaml.safe_load(text)
    return tree


def takes(method: dict[str, Any]) -> list[str]:
    """The optional parts that a method refers to.

    >>> takes(node("method", "choco")), takes(node("method", "psgd"))
    (['compressor', 'topology'], [])
    """
    return [part for part in OPTIONAL if f"${{{part}}}" in method.values()]
