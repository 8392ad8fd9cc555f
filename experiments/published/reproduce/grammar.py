"""What a claim may say: the functions of the language with their arguments, and which names stand for variants."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.published.reproduce.formulas import CONSTANTS, FUNCTIONS, evaluate
from commeff.experiments.published.reproduce.language import (
    Arithmetic,
    Call,
    Expression,
    LanguageError,
    Literal,
    Name,
    Statement,
    walk,
)

RELATIONS = ("below", "above", "within", "equal", "order")  # calls that are claims by themselves
QUANTITIES = ("final", "floor", "least", "rate", "to", "onset")  # calls on a variant, or in slope on a metric


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
    if tree.margin is not None:
        _check_margin(tree)
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
    if "sigmas" in call.named and not 0 < _number(call.named["sigmas"]) < math.inf:
        raise LanguageError(f"sigmas of {call.function} must be a number above 0")
    if call.function == "within":
        _check_near(call.arguments[2], "the third argument of within")
        if isinstance(call.arguments[2], Arithmetic | Call) and _has_percentage(call.arguments[2]):
            raise LanguageError(
                "a percentage in within stands alone, as within(a, b, 20%): a part of a sum has no share"
            )
    if call.function == "equal" and count == 3 and not isinstance(call.arguments[2], Name):
        raise LanguageError("the third argument of equal is `bits` or a metric")


def _check_margin(tree: Statement) -> None:
    """Refuse what is no distance behind ±."""
    assert tree.margin is not None
    assert tree.right is not None
    _check_near(tree.margin, "what stands behind ±")
    if _has_percentage(tree.margin):
        by = abs(_number(Arithmetic("*", tree.margin, tree.right)))
        raise LanguageError(
            f"± wants how far and no percentage, which says not of what; write ± {by:.3g}"
            if math.isfinite(by)
            else "± wants how far and no percentage, which says not of what; write a number, or within(a, b, 10%)"
        )


def _check_near(tree: Expression, what: str) -> None:
    if not 0 <= _number(tree, 0.0) < math.inf:
        raise LanguageError(f"{what} must be at least 0 and finite: it is how far apart is near")


def _has_percentage(tree: Expression) -> bool:
    return any(isinstance(part, Literal) and part.percent for part in walk(tree))


def _number(tree: Expression, unknown: float = math.nan) -> float:
    """Of an expression without names; `unknown` of any other."""
    if any(isinstance(part, Name) and part.text not in CONSTANTS for part in walk(tree)):
        return unknown
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
    """Whether a slope without a variant is part of it, which a table of one variant may have."""
    return any(isinstance(part, Call) and part.function == "slope" and len(part.arguments) == 2 for part in walk(tree))
