"""The parts of a table file that speak of results: claims, printed numbers, tolerance and cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.published.reproduce.formulas import FUNCTIONS, evaluate
from commeff.experiments.published.reproduce.language import (
    Call,
    Expression,
    LanguageError,
    Literal,
    Name,
    Statement,
    parse_claim,
    parse_formula,
    walk,
)

if TYPE_CHECKING:
    from commeff.experiments.config.clusters import Place

CLAIM_KEYS = ("claim", "of", "each", "where", "from", "source", "because")
NUMBER_KEYS = ("variant", "where", "of", "value", "spread", "source", "from", "because")
TOLERANCES = ("absolute", "relative", "rank")
RELATIONS = ("below", "above", "within", "equal", "order")  # calls that are claims by themselves
QUANTITIES = ("final", "floor", "least", "rate", "to", "onset")  # calls on a variant, or in slope on a metric
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
                str(item["claim"]),
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


def check_claim(tree: Statement, names: Sequence[str]) -> None:
    """Refuse calls that the language does not have, and claims that claim nothing."""
    alone = tree.relation is None
    if alone and not (isinstance(tree.left, Call) and tree.left.function in RELATIONS):
        raise LanguageError(f"a claim is one of {', '.join(f'{r}(...)' for r in RELATIONS)} or has <, <=, >, >= or =")
    hidden = of_metrics(tree)
    for part in walk(tree):
        if not isinstance(part, Call):
            continue
        known = [*RELATIONS, *QUANTITIES, "slope", *FUNCTIONS]
        if part.function not in known:
            near = did_you_mean(part.function, known)
            raise LanguageError(f"{part.function} is no word of the language{near}; it has {', '.join(known)}")
        if part.function in RELATIONS and (not alone or part is not tree.left):
            raise LanguageError(f"{part.function}(...) is a claim of its own and no part of another")
        check_call(part)
        _check_quantity(part, names, id(part) in hidden)
    variants = [part for part in _variants(tree) if part.text in names or part.text == "others"]
    if not variants and not _over_all(tree):
        said = ", ".join(dict.fromkeys(part.text for part in _variants(tree)))
        near = next((did_you_mean(part.text, names) for part in _variants(tree) if did_you_mean(part.text, names)), "")
        raise LanguageError(f"a claim must name a variant, got {said or 'none'}{near}; there are {', '.join(names)}")
    if alone and isinstance(tree.left, Call):
        for part in _variants(tree):
            if part.text not in (*names, "others"):
                raise LanguageError(
                    f"no variant {part.text!r}{did_you_mean(part.text, names)}; there are {', '.join(names)}"
                )


def check_call(call: Call) -> None:
    """Refuse arguments that a function of the language does not take."""
    count, words = len(call.arguments), set(call.named)
    allowed: dict[str, tuple[int, int, set[str]]] = {
        "below": (2, 2, {"sigmas"}),
        "above": (2, 2, {"sigmas"}),
        "within": (3, 3, set()),
        "equal": (2, 3, set()),
        "order": (2, 50, {"sigmas"}),
        "final": (1, 1, set()),
        "floor": (1, 1, set()),
        "least": (1, 1, set()),
        "rate": (1, 1, {"down_to"}),
        "to": (2, 2, {"of"}),
        "onset": (3, 3, set()),
        "slope": (2, 3, set()),
    }
    least, most, named = allowed.get(call.function, (1, 9, set()))
    if not least <= count <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise LanguageError(f"{call.function} takes {wanted} arguments, got {count}")
    if words - named:
        raise LanguageError(f"{call.function} has no argument {min(words - named)!r}")
    if "sigmas" in call.named and not _number(call.named["sigmas"]) > 0:
        raise LanguageError(f"sigmas of {call.function} must be a number above 0")
    if call.function == "within" and _number(call.arguments[2]) < 0:
        raise LanguageError("the third argument of within must be at least 0: it is how far apart is near")
    if call.function == "equal" and count == 3 and not isinstance(call.arguments[2], Name):
        raise LanguageError("the third argument of equal is `bits` or a metric")


def _number(tree: Expression) -> float:
    """Of an expression without names; NaN of any other."""
    if any(isinstance(part, Name) for part in walk(tree)):
        return math.nan
    return evaluate(tree, lambda name: math.nan)


def _check_quantity(call: Call, names: Sequence[str], of_metric: bool) -> None:
    """Refuse a quantity of what is no variant; in slope it is one of a metric."""
    known = [] if of_metric or call.function not in QUANTITIES else call.arguments[:1]
    known = [*known, *(call.arguments[1:2] if call.function == "onset" else [])]
    for part in known:
        if not (isinstance(part, Name) and (part.text in names or part.text == "others")):
            text = part.text if isinstance(part, Name) else "a number"
            near = did_you_mean(text, names)
            raise LanguageError(f"{call.function} wants a variant, one of {', '.join(names)}, got {text}{near}")


def of_metrics(tree: Statement) -> set[int]:
    """The parts that speak of metrics and labels: those of slope, and what equal compares."""
    hidden: set[int] = set()
    for part in walk(tree):
        if isinstance(part, Call) and part.function in ("slope", "equal"):
            metrics = part.arguments[:2] if part.function == "slope" else part.arguments[2:]
            hidden |= {id(inner) for metric in metrics for inner in walk(metric)}
    return hidden


def _variants(tree: Statement) -> Iterator[Name]:
    """The names that can be variants."""
    hidden = of_metrics(tree)
    for part in walk(tree):
        if isinstance(part, Call):
            hidden |= {id(value) for value in part.named.values()}
        if isinstance(part, Name) and id(part) not in hidden:
            yield part


def _over_all(tree: Statement) -> bool:
    """Whether a slope without a variant is part of it: it is judged for every variant."""
    return any(isinstance(part, Call) and part.function == "slope" and len(part.arguments) == 2 for part in walk(tree))


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
        if spread is not None and (isinstance(spread, bool) or not isinstance(spread, (int, float)) or not spread >= 0):
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
    if not value >= 0 or (node["kind"] != "rank" and "by" not in node):
        faults.append(f"tolerance.by must be a number or a percentage, got {node.get('by')!r}")
        return Tolerance("relative", 0.05)
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
