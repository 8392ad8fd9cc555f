"""What stands at an axis: a name, or arithmetic of names, read by `ast` and never by `eval`.

Names are settings (method.period, optimizer.lr, workers), metrics (val_loss, wire_bytes, step) and constants of parts
(topology.gap, compressor.omega, task.L: `commeff.experiments.catalogue.constants`). There are + - * / **, the functions
of FUNCTIONS, last(METRIC), the number at a run's end, and until(METRIC, TARGET, LEVEL), the METRIC where another one
first gets as good as a level.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from commeff.experiments.report.data.quantities import Quantity, quantity

LONGEST = 200  # characters
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
FUNCTIONS = {name: getattr(np, name) for name in ("sqrt", "exp", "log", "log2", "log10", "abs")}
OF_A_RUN = {"last": 1, "until": 3}  # functions of metrics, and how many arguments they have
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, eq=False)
class Formula:
    """A formula; `names` are all names in it, `along` those that stand for a whole curve where they are metrics."""

    text: str
    tree: ast.expr
    names: tuple[str, ...] = ()
    along: tuple[str, ...] = ()

    @classmethod
    def read(cls, option: str, text: str) -> Formula:
        """A formula that an option gives.

        Raises
        ------
        ValueError
            If it is none.

        Examples
        --------

        >>> Formula.read("--x", "compressor.omega / workers * last(wire_bytes)").names
        ('compressor.omega', 'workers', 'wire_bytes')
        """
        along: list[str] = []
        others: list[str] = []
        try:
            formula = cls(text, ast.parse(text.strip() if len(text) <= LONGEST else "", mode="eval").body)
            formula(
                lambda name: along.append(name) or 1.0,  # type: ignore[func-returns-value]
                lambda name: others.append(name) or 1.0,  # type: ignore[func-returns-value]
                lambda *names: others.extend(names[:2]) or 1.0,  # type: ignore[func-returns-value]
            )
        except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
            along = others = []
        if not along + others:
            functions = ", ".join(f"{name}()" for name in (*FUNCTIONS, *OF_A_RUN))
            raise ValueError(
                f"{option} must be a name, or + - * / ** of names and numbers with {functions}, such as "
                f"1 / topology.gap or until(step, val_loss, 0.1); got {text!r:.80}"
            )
        return cls(text, formula.tree, tuple(dict.fromkeys(along + others)), tuple(along))

    def __call__(self, value: Callable[[str], Any], last: Callable[[str], Any], until: Callable[..., Any]) -> Any:
        """Its value where names have these values, metrics at a run's end, and where a metric first gets so good."""

        def of(node: ast.expr) -> Any:
            text = ast.unparse(node)
            if isinstance(node, ast.Name | ast.Attribute) and DOTTED.fullmatch(text):
                return value(text)
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
                return np.float64(node.value)
            if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
                return OPERATORS[type(node.op)](of(node.left), of(node.right))
            if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
                return OPERATORS[type(node.op)](of(node.operand))
            if not isinstance(node, ast.Call) or node.keywords:
                raise ValueError(text)
            name, arguments = ast.unparse(node.func), [ast.unparse(argument) for argument in node.args]
            if name in FUNCTIONS and len(arguments) == 1:
                return FUNCTIONS[name](of(node.args[0]))
            if len(arguments) != OF_A_RUN.get(name) or not all(argument.isidentifier() for argument in arguments[:2]):
                raise ValueError(text)
            return last(*arguments) if name == "last" else until(*arguments[:2], float(arguments[2]))

        with np.errstate(all="ignore"):
            return of(self.tree)

    @property
    def shown(self) -> Quantity:
        """The quantity at an axis, with its unit.

        >>> [Formula.read("--x", text).shown.axis for text in ("last(wire_bytes)", "method.period", "1 / topology.gap")]
        ['sent on the wire per worker, counted (MB)', 'period', '1 / spectral gap 1 − ρ']
        >>> Formula.read("--y", "until(step, val_loss, 0.1)").shown.axis
        'step where validation loss gets to 0.1'
        """
        if isinstance(self.tree, ast.Call) and ast.unparse(self.tree.func) in OF_A_RUN:
            first, *rest = map(ast.unparse, self.tree.args)
            metric = quantity(first)
            words = f"{metric.words} where {quantity(rest[0]).words} gets to {rest[1]}" if rest else metric.words
            return Quantity(self.text, words, words, metric.unit, metric.scale)
        if not isinstance(self.tree, ast.Name | ast.Attribute):
            words = re.sub(rf"{DOTTED.pattern}(?!\w*\()", lambda name: quantity(name[0]).words, self.text)
            return Quantity(self.text, words, words)
        return quantity(self.text)
