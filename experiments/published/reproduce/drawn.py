"""What a table file says of its figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.published.reproduce.language import Expression, LanguageError, parse_formula
from commeff.experiments.published.reproduce.statements import has_keys

FIGURE_KEYS = ("x", "y", "lines", "panels", "log", "only", "x_title", "y_title")


@dataclass(frozen=True)
class FigureWords:
    """What is drawn: a quantity against a column of the curves or a label, a line for each of some labels.

    `only` are the variants that are drawn, if not all; titles are what stands at the axes, if not the names.
    """

    x: str
    y: Expression
    lines: tuple[str, ...]
    panels: str | None
    log: str
    only: tuple[str, ...] = ()
    x_title: str = ""
    y_title: str = ""


def read_figure(node: Any, names: Sequence[str], faults: list[str]) -> FigureWords | None:
    """What is drawn; None where the file says nothing."""
    if node is None or not has_keys(node, FIGURE_KEYS, ("x", "y"), "figure", faults):
        return None
    try:
        y = parse_formula(str(node["y"]))
    except LanguageError as error:
        faults.append(f"figure.y: {error}")
        return None
    lines, only = node.get("lines") or [], node.get("only") or []
    log = str(node.get("log") or "")
    if not isinstance(lines, list) or not isinstance(only, list) or log not in ("", "x", "y", "xy"):
        faults.append("figure.lines must be a list of labels, figure.only one of variants, and figure.log x, y or xy")
        return None
    unknown = [str(name) for name in only if name not in names]
    faults += [f"figure.only: no variant {name!r}{did_you_mean(name, names)}" for name in unknown]
    panels = node.get("panels")
    return FigureWords(
        x=str(node["x"]),
        y=y,
        lines=tuple(map(str, lines)),
        panels=None if panels is None else str(panels),
        log=log,
        only=tuple(map(str, only)),
        x_title=str(node.get("x_title") or ""),
        y_title=str(node.get("y_title") or ""),
    )
