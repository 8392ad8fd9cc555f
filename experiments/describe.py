"""What can be chosen, and what a choice means: docstrings and configurations for a reader at a terminal."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.syntax import Syntax

from experiments.groups import GROUPS, built_in, node, takes
from experiments.plugins import Choice
from experiments.schema import did_you_mean
from experiments.targets import locate


def overview(plugins: Sequence[Choice]) -> dict[str, str]:
    """The choices of every group."""
    return {group: " ".join([*built_in(group), *(p.name for p in plugins if p.group == group)]) for group in GROUPS}


def catalogue(group: str, plugins: Sequence[Choice]) -> dict[str, str]:
    """One line on each choice of a group; a method's line ends with the parts that it takes."""
    if group not in GROUPS:
        raise ValueError(f"no group {group!r}{did_you_mean(group, GROUPS)}; choose from {', '.join(GROUPS)}")
    nodes = {name: node(group, name) for name in built_in(group)} | {
        p.name: p.node for p in plugins if p.group == group
    }
    return {name: summary(locate(choice["_target_"])) + _taken(choice) for name, choice in nodes.items()}


def _taken(choice: dict[str, Any]) -> str:
    return f"  [{', '.join(takes(choice))}]" if takes(choice) else ""


def summary(target: Any) -> str:
    """The first line of a docstring.

    >>> summary(yaml.safe_load)
    'Parse the first YAML document in a stream'
    """
    return (inspect.getdoc(target) or "").partition("\n")[0]


def explain(config: Mapping[str, Any]) -> None:
    """Print the configuration, then the method's docstring."""
    console = Console()
    console.print(Syntax(yaml.safe_dump(dict(config), sort_keys=False), "yaml", background_color="default"))
    console.print(
        inspect.getdoc(locate(config["method"]["_target_"])) or "", markup=False, highlight=False, soft_wrap=True
    )
