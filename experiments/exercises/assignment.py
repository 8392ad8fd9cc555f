"""What is asked of a student: functions, and the laws on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Solution = Callable[..., Any]  # a student's function, or the catalogue's


@dataclass(frozen=True)
class Law:
    """A law that a function must satisfy.

    Parameters
    ----------
    expected : the sentence of the page.
    measure : what a solution gives, by what it was asked; equal to what the right one gives.
    tolerance : of numbers, in units of 1 + |expected|.
    """

    expected: str
    measure: Callable[[Solution], Mapping[str, Any]]
    tolerance: float = 1e-6  # single precision will do

    def fault(self, right: Mapping[str, Any], got: Mapping[str, Any]) -> str:
        """The first answer that is not the right one, in words; '' if all are."""
        faults = ((asked, difference(value, got[asked], self.tolerance)) for asked, value in right.items())
        return next((f"{asked}: {words}" for asked, words in faults if words), "")


@cache
def known(law: Law, solution: Solution) -> Mapping[str, Any]:
    """The results of a solution of ours."""
    return law.measure(solution)


@dataclass(frozen=True)
class Assignment:
    """A function that a student writes.

    Parameters
    ----------
    name : of the function.
    right : the same from the catalogue.
    laws : what must hold, from the simple to the whole.
    beside : the function of whose exercise it is a part; "" where it is the exercise.
    """

    name: str
    right: Solution
    laws: tuple[Law, ...]
    beside: str = ""


def difference(right: Any, got: Any, tolerance: float) -> str:
    """What is wrong about an answer, numbers or words; '' if nothing is.

    >>> difference([1.0, 2.0], [1.0, 3.0], 1e-9), difference(["F0"], ["F0"], 0.0), difference([1.0], None, 0.0)
    ('expected 2 at [1], got 3', '', 'it returns None: end with `return`')
    """
    if got is None:
        return "it returns None: end with `return`" if right is not None else ""
    one, other = np.asarray(right), np.asarray(got)
    words = one.dtype.kind == "U"
    if other.dtype.kind not in ("U" if words else "biuf") and other.size:
        return f"expected {'words' if words else 'numbers'}, got {other.dtype.name}"
    length = min(len(one), len(other)) if words and one.ndim == other.ndim else None
    if one.shape != other.shape and (length is None or (one[:length] == other[:length]).all()):
        return f"expected shape {one.shape}, got {other.shape}"
    one, other = (one[:length], other[:length]) if length is not None else (one, other)
    wrong = one != other if words else ~np.isclose(other, one, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    show = str if words else "{:.8g}".format
    return f"expected {show(one[place])}{f' at {[*place]}' if place else ''}, got {show(other[place])}"
