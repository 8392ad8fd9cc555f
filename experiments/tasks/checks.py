"""One-line refusals shared by the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch

T = TypeVar("T")

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}


def choose(what: str, name: str, options: Mapping[str, T]) -> T:
    """The option called `name`; anything else is refused with the list of choices.

    >>> choose("dtype", "float64", DTYPES)
    torch.float64
    >>> choose("dtype", "int8", DTYPES)
    Traceback (most recent call last):
    ValueError: dtype 'int8' is not known: choose one of float32, float64
    """
    if name not in options:
        raise ValueError(f"{what} {name!r} is not known: choose one of {', '.join(options)}")
    return options[name]


def at_least(least: float, **values: float) -> None:
    """Refuse the first named value that is below `least` or not finite.

    >>> at_least(1, workers=0)
    Traceback (most recent call last):
    ValueError: workers must be at least 1 and finite, got 0
    """
    for name, value in values.items():
        if not least <= value < float("inf"):
            raise ValueError(f"{name} must be at least {least} and finite, got {value}")


def positive(name: str, value: float) -> None:
    """Refuse a value that is not a positive finite number.

    >>> positive("alpha", 0.0)
    Traceback (most recent call last):
    ValueError: alpha must be a positive finite number, got 0.0
    """
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a positive finite number, got {value}")
