"""How much a function does, counted and not timed: the same on every machine, whatever else it does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def calls(work: Callable[[], T]) -> tuple[T, int]:
    """What a function returns, and how many functions were called meanwhile, those of C included.

    >>> calls(lambda: [abs(i) for i in (1, 2, 3)])[0], calls(lambda: [abs(i) for i in range(100)])[1] >= 100
    ([1, 2, 3], True)
    """
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return result, count
