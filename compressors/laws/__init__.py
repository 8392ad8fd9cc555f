"""What every compressor must obey: ``check(compressor)`` raises AssertionError with the law that is broken.

A user's compressor is held to the same laws as ours. All randomness is fixed, so a result does not change from run to
run. A law is a function of a compressor; its sentence says which compressor, what was measured against what was
claimed, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from commeff.compressors.base import Compressor
from commeff.compressors.laws.figures import check_constants, check_dtypes, check_error, check_unbiased
from commeff.compressors.laws.form import cases, check_form, other_values
from commeff.compressors.laws.pieces import check_pieces
from commeff.compressors.laws.problems import LAYOUT, SAMPLES
from commeff.compressors.laws.purity import (
    check_history,
    check_own_randomness,
    check_pure,
    check_rows_independent,
    check_scope,
)
from commeff.compressors.laws.wire import (
    check_add_to,
    check_shapes,
    check_size_without_numbers,
    check_summable,
    check_wire,
)

__all__ = [
    "BASES",
    "INFORMATION",
    "LAWS",
    "LAYOUT",
    "SAMPLES",
    "cases",
    "check",
    "check_add_to",
    "check_constants",
    "check_dtypes",
    "check_error",
    "check_form",
    "check_history",
    "check_own_randomness",
    "check_pieces",
    "check_pure",
    "check_rows_independent",
    "check_scope",
    "check_shapes",
    "check_size_without_numbers",
    "check_summable",
    "check_unbiased",
    "check_wire",
    "concrete",
    "other_values",
]

LAWS: tuple[Callable[[Compressor], None], ...] = (
    check_pure,
    check_constants,
    check_wire,
    check_rows_independent,
    check_own_randomness,
    check_error,
    check_unbiased,
    check_scope,
    check_pieces,
    check_summable,
    check_add_to,
    check_shapes,
    check_dtypes,
)

# What a compressor may do without: `commeff check` mentions it.
INFORMATION: tuple[Callable[[Compressor], None], ...] = (check_size_without_numbers,)

# Laws that say nothing where another is broken, such as those that compare two messages where none is like the other.
BASES = {
    check_pure: (
        check_rows_independent,
        check_own_randomness,
        check_scope,
        check_shapes,
        check_history,
        check_pieces,
        check_size_without_numbers,
    ),
    check_scope: (check_pieces,),
    check_error: (check_dtypes,),
}


def check(compressor: Compressor) -> None:
    """All laws, one after the other."""
    check_form(type(compressor))
    for law in LAWS:
        law(compressor)


def concrete(kind: type[Compressor] = Compressor) -> Iterator[type[Compressor]]:
    """All compressors that are defined at this moment: the classes below ``kind`` that are not abstract."""
    for child in kind.__subclasses__():
        if not child.__abstractmethods__:
            yield child
        yield from concrete(child)
