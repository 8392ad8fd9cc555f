"""What every constructor requires of its arguments, with one line that says so when they do not fit."""

from __future__ import annotations

from operator import index


def integer(name: str, value: int, least: int) -> int:
    """`value` as an int of at least `least`.

    >>> integer("ring: n", 8, 1)
    8
    >>> integer("ring: n", 0, 1)
    Traceback (most recent call last):
    ValueError: ring: n must be at least 1, got 0
    """
    try:
        whole = index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer of at least {least}, got {value!r}") from None
    if whole < least:
        raise ValueError(f"{name} must be at least {least}, got {whole}")
    return whole


def fraction(name: str, value: float) -> float:
    """`value` as a float in (0, 1].

    >>> fraction("od_equidyn: eta", 0.5)
    0.5
    """
    if not 0 < value <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {value}")
    return float(value)
