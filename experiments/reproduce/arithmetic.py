"""Signs between what is not yet a number: quantities of a table, and values of claims."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}


class Arithmetic:
    """A class whose `_with` says what a sign between two makes."""

    def _with(self, sign: str, left: object, right: object) -> Any:
        raise NotImplementedError


def _signed(sign: str, reversed_: bool) -> Callable[[Any, object], Any]:
    def method(self: Any, other: object) -> Any:
        return self._with(sign, other, self) if reversed_ else self._with(sign, self, other)

    return method


for _sign, _name in zip(SIGNS, ("add", "sub", "mul", "truediv", "pow"), strict=True):
    setattr(Arithmetic, f"__{_name}__", _signed(_sign, False))
    setattr(Arithmetic, f"__r{_name}__", _signed(_sign, True))
