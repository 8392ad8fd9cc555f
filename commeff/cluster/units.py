"""Quantities as hardware sheets write them: '200 Gb/s', '80 GiB', '5 us', read into bytes, seconds and FLOP/s."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Literal

Kind = Literal["bytes", "bytes/s", "seconds", "FLOP/s"]
POWERS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
TIMES = {"s": "1", "ms": "1e-3", "us": "1e-6", "ns": "1e-9"}
PATTERNS = {  # prefix, then what is counted
    "bytes": r"(?P<prefix>[kMGTP]|[KMG]i|)(?P<unit>B)",
    "bytes/s": r"(?P<prefix>[kMGTP]|[KMG]i|)(?P<unit>[Bb])/s",
    "FLOP/s": r"(?P<prefix>[kMGTP]|)(?P<unit>FLOP)/s",
}
EXAMPLES = {"bytes": "80 GiB", "bytes/s": "200 Gb/s or 25 GB/s", "seconds": "5 us", "FLOP/s": "312 TFLOP/s"}


def quantity(what: str, value: Any, kind: Kind) -> float:
    """A number in bytes, bytes/s, seconds or FLOP/s: bare, or with a unit. A small b is a bit, eight to the byte.

    >>> quantity("bandwidth", "200 Gb/s", "bytes/s"), quantity("latency", "5 us", "seconds"), quantity("S", 15, "bytes")
    (25000000000.0, 5e-06, 15.0)
    >>> quantity("memory", "80 Gb", "bytes")
    Traceback (most recent call last):
    ValueError: memory: '80 Gb' is not a number of bytes; write it like 80 GiB, or as a bare number of bytes
    """
    refusal = ValueError(
        f"{what}: {value!r} is not a number of {kind}; write it like {EXAMPLES[kind]}, or as a bare number of {kind}"
    )
    if isinstance(value, float):
        return value
    match = (
        None
        if isinstance(value, bool)
        else re.fullmatch(r"\s*(?P<number>[-+.\deE]+?)\s*(?P<unit>[A-Za-z][A-Za-z/]*)?\s*", str(value))
    )
    factor = scale(match["unit"], kind) if match else None
    if match is None or factor is None:
        raise refusal
    try:
        return float(Decimal(match["number"]) * factor)
    except ArithmeticError:  # no number, or one that no float can be
        raise refusal from None


def scale(unit: str | None, kind: Kind) -> Decimal | None:
    """How many bytes, bytes/s, seconds or FLOP/s one `unit` is; None if it is no such unit.

    >>> scale("Gb/s", "bytes/s"), scale("ms", "seconds"), scale(None, "bytes"), scale("GB", "bytes/s")
    (Decimal('125000000'), Decimal('0.001'), Decimal('1'), None)
    """
    if unit is None:
        return Decimal(1)
    if kind == "seconds":
        return Decimal(TIMES[unit]) if unit in TIMES else None
    match = re.fullmatch(PATTERNS[kind], unit)
    return None if match is None else Decimal(POWERS[match["prefix"]]) / (8 if match["unit"] == "b" else 1)
