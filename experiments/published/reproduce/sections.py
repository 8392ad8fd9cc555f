"""The parts of a table file that are plain: words, settings, formulas, seeds, and what a scale changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.published.reproduce.cases import values_of
from commeff.experiments.published.reproduce.language import Expression, LanguageError, parse_formula
from commeff.experiments.published.reproduce.statements import SCALES

SMOKE = {"steps": 10, "evaluate_every": 5}  # of a table that does not say


def read_scales(raw: Mapping[str, Any], scale: str, file: str, faults: list[str]) -> dict[str, dict[str, Any]]:
    """What each scale changes: those that the file names, full, and the one that is asked for."""
    scales = raw.get("scales") or {}
    if not isinstance(scales, dict) or not all(isinstance(own or {}, dict) for own in scales.values()):
        faults.append(f"scales must be as {{smoke: {{steps: 10}}}}, got {scales!r}")
        return {scale: {}}
    unknown = [str(key) for key in scales if key not in SCALES]
    faults += [f"scales has no use for {key!r}{did_you_mean(key, SCALES)}" for key in unknown]
    if scale not in SCALES:
        faults.append(f"--scale must be one of {', '.join(SCALES)}, got {scale!r}{did_you_mean(scale, SCALES)}")
    elif scale == "reduced" and scale not in scales:
        faults.append(f"{file} has no scale reduced; it runs at --scale full, and smoke")
    named = [each for each in SCALES if each in scales or each in ("full", scale)]
    own = {each: dict(scales.get(each) or (SMOKE if each == "smoke" else {})) for each in named}
    return own if scale in own else own | {scale: {}}


def read_settings(raw: Mapping[str, Any], part: str, faults: list[str], name: str = "") -> dict[str, str]:
    """Settings, as text; of a scale (part "") those of its keys that are no rules. `name` of the part, for faults."""
    node = (raw.get(part) or {}) if part else {k: v for k, v in raw.items() if k not in ("seeds", "keep")}
    if not isinstance(node, dict) or any(isinstance(value, dict) for value in node.values()):
        what = name or part or "a scale"
        faults.append(f"{what} must hold settings with dotted keys, such as task.batch: 8, got {node!r}")
        return {}
    return {str(key): text(value) for key, value in node.items()}


def read_keep(own: Mapping[str, Any], faults: list[str]) -> dict[str, list[str]]:
    """Of each label, the values that a scale keeps."""
    node = own.get("keep") or {}
    if not isinstance(node, dict):
        faults.append(f"keep must hold labels and the values that stay, such as {{workers: [4, 8]}}, got {node!r}")
        return {}
    return {str(key): values_of(value) for key, value in node.items()}


def read_words(raw: Mapping[str, Any], part: str, faults: list[str]) -> dict[str, str]:
    """Words by name, as text."""
    node = raw.get(part) or {}
    if not isinstance(node, dict):
        faults.append(f"{part} must be a mapping of words, got {node!r}")
        return {}
    cut = "says nothing; a comma inside {...} ends a text: put it between quotes"
    faults += [f"{part}: {key} {cut}" for key, value in node.items() if value is None]
    return {str(key): one_line(value) for key, value in node.items()}


def one_line(value: Any) -> str:
    """A text, its lines joined: a new one could begin a heading of the page.

    >>> one_line("A title\\n# and another")
    'A title # and another'
    """
    return " ".join(str(value).split())


def read_names(raw: Mapping[str, Any], part: str, faults: list[str]) -> list[str]:
    """A list of names."""
    node = raw.get(part) or []
    if not isinstance(node, list):
        faults.append(f"{part} must be a list of names, got {node!r}")
        return []
    return [str(name) for name in node]


def read_formulas(raw: Mapping[str, Any], part: str, faults: list[str]) -> dict[str, Expression]:
    """The formulas of a part, by name."""
    found = {}
    for key, value in read_words(raw, part, faults).items():
        try:
            found[key] = parse_formula(value)
        except LanguageError as error:
            faults.append(f"{part}.{key}: {error}")
    return found


def read_show(raw: Mapping[str, Any], claimed: Iterable[str], faults: list[str]) -> tuple[str, ...]:
    """The quantities that a table shows: the metrics that claims speak of, unless it says."""
    node = raw.get("show")
    if node is None:
        return tuple(dict.fromkeys(claimed))
    if not isinstance(node, list) or not all(isinstance(each, str) for each in node):
        faults.append(f"show must be a list of quantities, such as [val_loss, floor(val_loss)], got {node!r}")
        return ()
    for quantity in node:
        try:
            parse_formula(quantity)
        except LanguageError as error:
            faults.append(f"show: {error}")
            return ()
    return tuple(node)


def read_cost(raw: Mapping[str, Any], faults: list[str]) -> dict[str, str]:
    """What scales cost, in words."""
    found = read_words(raw, "cost", faults)
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
