"""Refusals of single values: counts, switches and names."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

MOST = 10**8  # of anything that is counted: beyond it 64-bit products of counts overflow


def counted(what: str, value: Any) -> None:
    """Refuse what is not a whole number from 1 to `MOST`.

    Parameters
    ----------
    what : name of the value, for the message.
    value : what must be a whole number.

    Examples
    --------
    >>> counted("tensor", 2.0)
    Traceback (most recent call last):
    ValueError: tensor must be a whole number from 1 on, got 2.0
    """
    if type(value) is not int or value < 1:
        raise ValueError(f"{what} must be a whole number from 1 on, got {value!r}")
    if value > MOST:
        raise ValueError(f"{what} must be at most {MOST:,}, got {value}: the planner counts no further")


def switch(what: str, value: Any) -> None:
    """Refuse what is not True or False.

    Parameters
    ----------
    what : name of the value, for the message.
    value : what must be True or False.

    Examples
    --------
    >>> switch("gated", 1)
    Traceback (most recent call last):
    ValueError: gated must be true or false, got 1
    """
    if not isinstance(value, bool):
        raise ValueError(f"{what} must be true or false, got {value!r}")


def chosen(what: str, value: str, names: Sequence[str]) -> None:
    """Refuse a name that is not known.

    Parameters
    ----------
    what : name of the value, for the message.
    value : the name to be looked up.
    names : the names to choose from.

    Examples
    --------
    >>> chosen("schedule", "1f1d", ("naive", "gpipe", "1f1b"))
    Traceback (most recent call last):
    ValueError: schedule must be one of naive gpipe 1f1b, got '1f1d'; did you mean 1f1b?
    """
    if value not in names:
        near = get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{what} must be one of {' '.join(names)}, got {value!r}{hint}")
