"""Formulas become numbers: arithmetic, a closed list of functions, and names that the caller knows."""

from __future__ import annotations

import math
from collections.abc import Callable

from commeff.experiments.published.reproduce.language import Call, Expression, LanguageError, Literal, Name

FUNCTIONS: dict[str, Callable[..., float]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
}
CONSTANTS = {"pi": math.pi}
SIGNS: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "^": math.pow,
}


def evaluate(tree: Expression, known: Callable[[str], float]) -> float:
    """The number that a formula has.

    Parameters
    ----------
    tree : of `parse_formula`.
    known : the number of a name; raises `LanguageError` for a name it does not know.

    >>> from commeff.experiments.published.reproduce.language import parse_formula
    >>> evaluate(parse_formula("(1 + 2/3) * cos(pi) + n^2 / 50%"), {"n": 3.0}.__getitem__)
    16.333333333333332
    """
    if isinstance(tree, Literal):
        return tree.value / 100 if tree.percent else tree.value
    if isinstance(tree, Name):
        return CONSTANTS[tree.text] if tree.text in CONSTANTS else known(tree.text)
    if isinstance(tree, Call):
        return apply(tree.function, [evaluate(argument, known) for argument in tree.arguments])
    return combine(tree.sign, evaluate(tree.left, known), evaluate(tree.right, known))


def apply(function: str, arguments: list[float]) -> float:
    """A function of the list at these numbers."""
    if function not in FUNCTIONS:
        raise LanguageError(f"{function} is no function of numbers; there are {', '.join(FUNCTIONS)}")
    try:
        return float(FUNCTIONS[function](*arguments))
    except (ValueError, OverflowError, TypeError) as error:
        words = ", ".join(f"{argument:g}" for argument in arguments)
        raise LanguageError(f"{function}({words}) is no number: {error}") from None


def combine(sign: str, left: float, right: float) -> float:
    """Two numbers with a sign between them."""
    try:
        return SIGNS[sign](left, right)
    except (ZeroDivisionError, ValueError, OverflowError) as error:
        raise LanguageError(f"{left:g} {sign} {right:g} is no number: {error}") from None


def transformed(tree: Expression, value: Callable[[Expression], float]) -> float:
    """A value, or its logarithm where the tree says log; NaN where it has none."""
    if isinstance(tree, Call) and tree.function in ("log", "log2") and len(tree.arguments) == 1:
        inner = value(tree.arguments[0])
        return apply(tree.function, [inner]) if 0 < inner < math.inf else math.nan
    return value(tree)
