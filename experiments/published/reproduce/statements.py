"""The parts of a table file that speak of results: claims, printed numbers, tolerance and cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.published.reproduce.grammar import check_claim
from commeff.experiments.published.reproduce.language import (
    Expression,
    LanguageError,
    Literal,
    Name,
    Statement,
    parse_claim,
    parse_formula,
)

if TYPE_CHECKING:
    from commeff.experiments.config.clusters import Place

CLAIM_KEYS = ("claim", "of", "each", "where", "from", "source", "because")
NUMBER_KEYS = ("variant", "where", "of", "value", "spread", "source", "from", "because")
TOLERANCES = ("absolute", "relative", "rank")
SCALES = ("smoke", "reduced", "full")
SECONDS = ("modelled_seconds", "modelled_hours")  # on the table's cluster
BYTES = ("sent_bytes", "received_bytes")  # by a worker


@dataclass(frozen=True)
class Claim:
    """A claim: its tree, the metric it speaks of, for which labels it is judged one by one, and from which scale on."""

    text: str
    tree: Statement
    of: str
    each: tuple[str, ...]
    where: tuple[tuple[str, str], ...]
    least_scale: str
    source: str
    because: str


@dataclass(frozen=True)
class PrintedNumber:
    """A number of the paper, or of a theorem: of which cases, of what, its value as a formula, its spread."""

    variant: str
    where: tuple[tuple[str, str], ...]
    of: Expression
    value: Expression
    spread: float | None
    source: str
    least_scale: str
    because: str


@dataclass(frozen=True)
class Tolerance:
    """How near ours must be: within `by`, within a share `by` of theirs, or in the same order."""

    kind: str
    by: float


@dataclass(frozen=True)
class TableCluster:
    """Where runs are modelled, and how many parameters their models are taken to have; None: their own."""

    place: Place
    parameters: float | None


def read_claims(node: Any, of: str, names: Sequence[str], faults: list[str]) -> tuple[Claim, ...]:
    """The claims; what is wrong with them goes to `faults`."""
    found = []
    for number, entry in enumerate(_list(node, "claims", faults), 1):
        item = {"claim": entry} if isinstance(entry, str) else entry
        if not has_keys(item, CLAIM_KEYS, ("claim",), f"claims: entry {number}", faults):
            continue
        try:
            tree = parse_claim(str(item["claim"]))
            check_claim(tree, names)
        except LanguageError as error:
            faults.append(f"claims: entry {number}: {error}")
            continue
        each = item.get("each") or []
        found.append(
            Claim(
                " ".join(str(item["claim"]).split()),
                tree,
                str(item.get("of", of)),
                tuple(map(str, each if isinstance(each, list) else [each])),
                _where(item.get("where"), f"claims: entry {number}", faults),
                _least(item.get("from", "reduced"), f"claims: entry {number}", faults),
                str(item.get("source") or ""),
                " ".join(str(item.get("because") or "").split()),
            )
        )
    return tuple(found)


def read_numbers(node: Any, of: str, names: Sequence[str], faults: list[str]) -> tuple[PrintedNumber, ...]:
    """The printed numbers; what is wrong with them goes to `faults`."""
    found = []
    for number, item in enumerate(_list(node, "numbers", faults), 1):
        where = f"numbers: entry {number}"
        if not has_keys(item, NUMBER_KEYS, ("variant", "value"), where, faults):
            continue
        if item["variant"] not in names:
            near = did_you_mean(str(item["variant"]), names)
            faults.append(f"{where}: no variant {item['variant']!r}{near}; there are {', '.join(names)}")
        spread = item.get("spread")
        good = isinstance(spread, (int, float)) and not isinstance(spread, bool) and 0 <= spread < math.inf
        if spread is not None and not good:
            faults.append(f"{where}: spread must be a number, as printed behind ±, got {spread!r}")
            spread = None
        try:
            found.append(
                PrintedNumber(
                    str(item["variant"]),
                    _where(item.get("where"), where, faults),
                    parse_formula(str(item.get("of", of))),
                    parse_formula(str(item["value"]).removeprefix("=")),
                    None if spread is None else float(spread),
                    str(item.get("source") or ""),
                    _least(item.get("from", "full"), where, faults),
                    " ".join(str(item.get("because") or "").split()),
                )
            )
        except LanguageError as error:
            faults.append(f"{where}: {error}")
    return tuple(found)


def read_tolerance(node: Any, faults: list[str]) -> Tolerance:
    """How near ours must be to theirs; relative 5 % unless the file says otherwise."""
    if node is None:
        return Tolerance("relative", 0.05)
    if not isinstance(node, dict) or set(node) - {"kind", "by"} or node.get("kind") not in TOLERANCES:
        faults.append(f"tolerance must be as {{kind: absolute, by: 0.5}}, kind one of {TOLERANCES}, got {node!r}")
        return Tolerance("relative", 0.05)
    try:
        tree = parse_formula(str(node.get("by", 0)))
    except LanguageError:
        tree = Name("")
    value = tree.value / (100 if tree.percent else 1) if isinstance(tree, Literal) else math.nan
    if not 0 <= value < math.inf or (node["kind"] != "rank" and "by" not in node):
        faults.append(f"tolerance.by must be a number or a percentage, at least 0 and finite, got {node.get('by')!r}")
        return Tolerance("relative", 0.05)
    if node["kind"] == "relative" and value > 1:
        meant = f"{tree.value:g}%" if isinstance(tree, Literal) and not tree.percent and value <= 100 else "5%"
        faults.append(f"tolerance.by must be at most 100% where it is relative, got {value:.0%}; write such as {meant}")
    return Tolerance(node["kind"], value)


def read_cluster(node: Any, folder: Path, faults: list[str]) -> TableCluster | None:
    """The cluster of the key `cluster`; its file is looked for from `folder`. None where the table names none."""
    from commeff.experiments.config.clusters import entries, read_place

    if node is None:
        return None
    own = dict(node) if isinstance(node, dict) else {"cluster": node}
    parameters = own.pop("parameters", None)
    if parameters is not None and "step_seconds" not in own:
        faults.append("cluster.step_seconds must be given with parameters: FLOPs are those of the run's own model")
    try:
        if parameters is not None and not float(parameters) >= 1:
            faults.append(f"cluster.parameters must be at least 1, got {parameters!r}")
        (entry,) = entries([own], folder)
        return TableCluster(read_place(entry), None if parameters is None else float(parameters))
    except (OSError, TypeError, ValueError) as error:
        faults.append(f"cluster: {error}")
        return None


def _list(node: Any, part: str, faults: list[str]) -> list[Any]:
    if node is not None and not isinstance(node, list):
        faults.append(f"{part} must be a list, got {node!r}")
        return []
    return list(node or [])


def has_keys(node: Any, keys: Sequence[str], needed: Sequence[str], where: str, faults: list[str]) -> bool:
    """Whether an entry is a mapping with the needed keys and no others; what is wrong goes to `faults`."""
    if not isinstance(node, dict):
        faults.append(f"{where} must hold {', '.join(keys)}, got {node!r}")
        return False
    unknown = [str(key) for key in node if key not in keys]
    missing = [key for key in needed if key not in node]
    cut = "; a comma inside {...} ends a text: put it between quotes"
    hints = {key: cut if key.endswith(")") else did_you_mean(key, keys) for key in unknown}
    faults += [f"{where} has no use for {key!r}{hint}" for key, hint in hints.items()]
    faults += [f"{where} has no {key}" for key in missing]
    return not unknown and not missing


def _where(node: Any, where: str, faults: list[str]) -> tuple[tuple[str, str], ...]:
    if node is not None and not isinstance(node, dict):
        faults.append(f"{where}: where must be labels and values, such as {{topology: ring}}, got {node!r}")
        return ()
    return tuple((str(key), text(value)) for key, value in (node or {}).items())


def _least(scale: Any, where: str, faults: list[str]) -> str:
    if scale not in SCALES:
        faults.append(f"{where}: from must be one of {', '.join(SCALES)}, got {scale!r}")
    return str(scale)
