"""What must hold of every topology, built in or the reader's own: `check(function)` raises AssertionError otherwise.

A law is a function of `TopologyCase`; its sentence says what was measured, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable

from commeff.topologies.laws.samples import SIZES, TopologyCase, accepts_all_arguments, cases
from commeff.topologies.laws.steps import (
    agrees_in_the_end,
    gives_mixing_matrices,
    has_an_honest_period,
    is_a_pure_function_of_the_step,
    keeps_agreement,
)
from commeff.topologies.laws.weights import describes_its_weights, has_the_norm_for_rho, tells_circulants_from_others
from commeff.topologies.topology import Topology

__all__ = [
    "BASES",
    "INFORMATION",
    "LAWS",
    "MATRIX_LAWS",
    "SIZES",
    "TopologyCase",
    "accepts_all_arguments",
    "agrees_in_the_end",
    "cases",
    "check",
    "describes_its_weights",
    "gives_mixing_matrices",
    "has_an_honest_period",
    "has_the_norm_for_rho",
    "is_a_pure_function_of_the_step",
    "keeps_agreement",
    "tells_circulants_from_others",
]

# Those that hold of every matrix, also of one whose columns alone sum to 1.
MATRIX_LAWS: tuple[Callable[[TopologyCase], None], ...] = (
    describes_its_weights,
    has_the_norm_for_rho,
    tells_circulants_from_others,
)

LAWS: tuple[Callable[[TopologyCase], None], ...] = (
    gives_mixing_matrices,
    keeps_agreement,
    is_a_pure_function_of_the_step,
    has_an_honest_period,
    agrees_in_the_end,
    *MATRIX_LAWS,
)

INFORMATION: tuple[Callable[[TopologyCase], None], ...] = (accepts_all_arguments,)  # a topology may refuse some

# Laws that say nothing where another is broken.
BASES = {
    gives_mixing_matrices: LAWS[1:],
    keeps_agreement: (agrees_in_the_end,),
    is_a_pure_function_of_the_step: (has_an_honest_period, agrees_in_the_end, *MATRIX_LAWS),
    describes_its_weights: (has_the_norm_for_rho, tells_circulants_from_others),
}


def check(function: Callable[..., Topology]) -> None:
    """All laws at all sizes, one after the other.

    >>> from commeff.topologies import ring
    >>> check(ring)
    """
    for case in cases(function):
        for law in LAWS:
            law(case)
