"""What must hold of every method, built in or the reader's own: `check(method)` runs all of it on a small problem.

A law is a function of `MethodCase` that raises `AssertionError` with a sentence: what was measured, and what to do. The
problem: 4 workers, each with its own quadratic in 12 coordinates (a 3 x 3 matrix and a vector), float64.
"""

from __future__ import annotations

from collections.abc import Callable

from commeff.laws.absence import agrees_where_it_says_so, leaves_the_absent_alone
from commeff.laws.conduct import (
    gives_the_same_when_x_is_donated,
    leaves_its_input_alone,
    pays_for_what_it_learns,
    repeats,
    runs_alone,
    stays_where_all_agree,
    works_in_blocks,
)
from commeff.laws.engines import is_the_same_on_every_engine
from commeff.laws.memory import does_not_grow, resumes, resumes_on_other_processes
from commeff.laws.pieces import acts_on_pieces
from commeff.laws.problem import LAYOUT, STEPS, WORKERS, Method, MethodCase, cases, run, slope, start
from commeff.laws.profiled import has_an_exact_profile, is_profiled

__all__ = [
    "BASES",
    "INFORMATION",
    "LAWS",
    "LAYOUT",
    "STEPS",
    "WORKERS",
    "Method",
    "MethodCase",
    "acts_on_pieces",
    "agrees_where_it_says_so",
    "cases",
    "check",
    "does_not_grow",
    "gives_the_same_when_x_is_donated",
    "has_an_exact_profile",
    "is_profiled",
    "is_the_same_on_every_engine",
    "leaves_its_input_alone",
    "leaves_the_absent_alone",
    "pays_for_what_it_learns",
    "repeats",
    "resumes",
    "resumes_on_other_processes",
    "run",
    "runs_alone",
    "slope",
    "start",
    "stays_where_all_agree",
    "works_in_blocks",
]

LAWS: tuple[Callable[[MethodCase], None], ...] = (
    repeats,
    leaves_its_input_alone,
    gives_the_same_when_x_is_donated,
    resumes,
    stays_where_all_agree,
    pays_for_what_it_learns,
    runs_alone,
    is_the_same_on_every_engine,
    resumes_on_other_processes,
    leaves_the_absent_alone,
    agrees_where_it_says_so,
    works_in_blocks,
    acts_on_pieces,
    is_profiled,
    does_not_grow,
)

# What a method may do without: `commeff check` mentions it.
INFORMATION: tuple[Callable[[MethodCase], None], ...] = (has_an_exact_profile,)

# Laws that say nothing where another is broken: those that compare two runs of a method that does not repeat, say.
BASES = {
    repeats: (
        gives_the_same_when_x_is_donated,
        resumes,
        pays_for_what_it_learns,
        is_the_same_on_every_engine,
        resumes_on_other_processes,
        works_in_blocks,
        acts_on_pieces,
        is_profiled,
        has_an_exact_profile,
    ),
    is_the_same_on_every_engine: (resumes_on_other_processes,),
    resumes_on_other_processes: (leaves_the_absent_alone,),
}


def check(method: Method) -> list[str]:
    """Run every law on a method function; gives the names of the laws that hold, raises AssertionError at the first
    that does not.
    """
    passed = []
    for case in cases(method):
        for law in LAWS:
            law(case)
            passed.append(f"{case.name} {law.__name__}")
    return passed
