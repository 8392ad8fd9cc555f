"""Versions of parts whose meaning was corrected: old results are not taken for new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commeff.experiments.config.schema import built_in, node

VERSION = "_version_"  # in the YAML of a choice whose meaning was corrected: how many meanings it has had


def version(part: Mapping[str, Any]) -> int:
    """Of what a part means; 1 until it is corrected. It is in the names of its runs, so that old results stay apart.

    >>> version(node("method", "post_local_sgd")), version(node("method", "local_sgd"))
    (2, 1)
    """
    return int(part.get(VERSION, 1))


def check_version(group: str, part: Mapping[str, Any]) -> None:
    """Refuse a part of a stored configuration that has been corrected since."""
    nodes = [node(group, name) for name in built_in(group)]
    today = next((version(each) for each in nodes if each["_target_"] == part.get("_target_")), version(part))
    if today != version(part):
        name = str(part["_target_"]).rpartition(".")[2]
        raise ValueError(
            f"{name} must have version {today}, which this commeff has, got {version(part)}: its meaning was corrected "
            "since; run it anew from its settings"
        )
