"""The parts of a table that are plain: words, settings, seeds, and what a scale changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commeff.experiments.reproduce.cases import Setting, in_words, setting, values_of
from commeff.experiments.reproduce.statements import SCALES, one_line
from commeff.require import did_you_mean

SMOKE = {"steps": 10, "evaluate_every": 5}  # of a table that does not say


def read_scales(raw: Mapping[str, Any], scale: str, faults: list[str]) -> dict[str, dict[str, Any]]:
    """What each scale changes: those that the file names, full, and the one that is asked for."""
    scales = raw.get("scales") or {}
    if not all(isinstance(own, dict) for own in scales.values()):
        faults.append(f'scales must be as {{"smoke": {{"steps": 10}}}}, got {scales!r}')
        return {scale: {}}
    unknown = [str(key) for key in scales if key not in SCALES]
    faults += [f"scales has no use for {key!r}{did_you_mean(key, SCALES)}" for key in unknown]
    if scale not in SCALES:
        faults.append(f"--scale must be one of {', '.join(SCALES)}, got {scale!r}{did_you_mean(scale, SCALES)}")
    elif scale == "reduced" and scale not in scales:
        faults.append("there is no scale reduced; it runs at --scale full, and smoke")
    named = [each for each in SCALES if each in scales or each in ("full", scale)]
    own = {each: dict(scales.get(each) or (SMOKE if each == "smoke" else {})) for each in named}
    return own if scale in own else own | {scale: {}}


def read_settings(node: Any, part: str, faults: list[str]) -> dict[str, Setting]:
    """Settings."""
    if not isinstance(node, dict) or any(isinstance(value, dict) for value in node.values()):
        faults.append(f'{part} must hold settings with dotted keys, such as "task.batch": 8, got {node!r}')
        return {}
    return {str(key): setting(value) for key, value in node.items()}


def read_keep(own: Mapping[str, Any], faults: list[str]) -> dict[str, list[str]]:
    """Of each label, the values that a scale keeps."""
    node = own.get("keep") or {}
    if not isinstance(node, dict):
        faults.append(f'keep must hold labels and the values that stay, such as {{"workers": [4, 8]}}, got {node!r}')
        return {}
    return {str(key): [in_words(each) for each in values_of(value)] for key, value in node.items()}


def read_words(node: Mapping[str, Any]) -> dict[str, str]:
    """Words by name, as text."""
    return {one_line(key): one_line(value) for key, value in node.items()}


def read_cost(raw: Mapping[str, Any], faults: list[str]) -> dict[str, str]:
    """What scales cost, in words."""
    found = read_words(raw.get("cost", {}))
    faults += [f"cost has no use for {key!r}{did_you_mean(key, SCALES)}" for key in found if key not in SCALES]
    return found


def are_seeds(node: Any) -> bool:
    """Whether it is a list of different whole numbers.

    >>> are_seeds([0, 1]), are_seeds([0, 0]), are_seeds([]), are_seeds([True]), are_seeds("01")
    (True, False, False, False, False)
    """
    whole = isinstance(node, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in node)
    return whole and bool(node) and len(set(node)) == len(node)


def read_seeds(
    raw: Mapping[str, Any], own: Mapping[str, Any], scale: str, exact: bool, faults: list[str]
) -> tuple[list[int], list[int]]:
    """The seeds of a scale, and all that the table has."""
    node = raw.get("seeds", [0] if exact else [0, 1, 2])
    if not are_seeds(node):
        faults.append(f"seeds must be a list of different whole numbers, such as [0, 1, 2], got {node!r}")
        return [0], []
    chosen = own.get("seeds", node[:1] if scale == "smoke" else node)
    if not are_seeds(chosen) or not set(chosen) <= set(node):
        faults.append(f"the seeds of scale {scale} must be among {node}, got {chosen!r}")
        return node, node
    if scale != "smoke" and len(chosen) < 3 and not exact:
        faults.append(f"at least 3 seeds are needed at scale {scale}, got {chosen}: fewer cannot tell")
    return chosen, node
