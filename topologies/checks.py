"""The questions every constructor asks of its arguments, answered in one line when they fail."""

from __future__ import annotations

from operator import index


def integer(name: str, value: int, least: int) -> int:
    """`value` as an int of at least `least`.

    >>> integer("ring: n", 8, 1)
    8
    >>> integer("ring: n", 0, 1)
    Traceback (most recent call last):
    ValueError: ring: n = 0 is too small; it must be an integer of at least 1
    """
    try:
        whole = index(value)
    except TypeError:
        raise TypeError(f"{name} = {value!r} is not an integer; it must be one of at least {least}") from None
    if whole < least:
        raise ValueError(f"{name} = {whole} is too small; it must be an integer of at least {least}")
    return whole


def fraction(name: str, value: float) -> float:
    """`value` as a float in (0, 1].

    >>> fraction("od_equidyn: eta", 0.5)
    0.5
    """
    if not 0 < value <= 1:
        raise ValueError(f"{name} = {value} lies outside (0, 1]; choose a number above 0 and at most 1")
    return float(value)
