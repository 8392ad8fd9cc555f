"""Tables of tests as files: values by key, claims as expressions of `r`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from commeff.experiments.reproduce.reading import KEYS

PRELUDE = """import math

from commeff.experiments.reproduce import (
    apply, claim, equal, final, floor, least, onset, order, printed, rate, slope, to, within,
)

loss, gap = final("val_loss"), final("gap")
"""


class Code(str):
    """A value that is written as it stands."""

    __repr__ = str.__str__


def source(content: Mapping[str, object]) -> str:
    """The text of a table; claims are expressions, or the body of the function."""
    parts = [PRELUDE]
    for key, value in sorted(content.items(), key=lambda pair: pair[0] in KEYS):  # helpers first
        if key != "claims" or not isinstance(value, (list, str)) or isinstance(value, Code):
            parts.append(f"{key} = {value!r}\n")
        else:
            parts.append(f"\n\ndef claims(r):\n{value if isinstance(value, str) else yields(value)}\n\n")
    return "".join(parts)


def yields(claims: Iterable[object]) -> str:
    """A body that claims each of these; (EXPRESSION, KEYWORDS) has more than a text."""
    pairs = [(each, "") if isinstance(each, str) else each for each in claims]  # type: ignore[misc]
    return "".join(f"    yield claim({words}, {str(words)!r}{more and ', ' + more})\n" for words, more in pairs)


def write_table(folder: Path, content: Mapping[str, object]) -> str:
    """Write mine.py into a folder; its path."""
    file = folder / "mine.py"
    file.write_text(source({key: value for key, value in content.items() if value is not None}), encoding="utf-8")
    return str(file)
