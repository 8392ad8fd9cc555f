"""A student's file judged: a verdict for each law."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import numpy as np

from commeff.experiments.config.check import Verdict, describe_error
from commeff.experiments.config.contained import contained
from commeff.experiments.config.plugins import loaded
from commeff.experiments.exercises import averaging, compression, gossiping, splitting
from commeff.experiments.exercises.assignment import Assignment, Law, Solution, known
from commeff.experiments.exercises.stubs import NAMES, answered

ASSIGNMENTS = averaging.ASSIGNMENTS + gossiping.ASSIGNMENTS + compression.ASSIGNMENTS + splitting.ASSIGNMENTS
EXERCISES = {name: [a for a in ASSIGNMENTS if name in (a.name, a.beside)] for name in NAMES}
SECONDS = 10.0  # that a law waits for a student's function; the right ones take less than one


def grade(file: Path) -> list[Verdict]:
    """The laws of the exercise that a file answers.

    Raises
    ------
    ValueError : if it answers none, or cannot be executed.
    """
    name = answered(file)
    module = loaded(str(file))
    return [
        verdict
        for assignment in EXERCISES[name]
        for verdict in judge(assignment, getattr(module, assignment.name, None), module.__file__ or "")
    ]


@np.errstate(all="ignore")
def judge(assignment: Assignment, solution: Solution | None, file: str = "", seconds: float = SECONDS) -> list[Verdict]:
    """The laws of an assignment on a function, None where it is missing."""
    if not callable(solution):
        missing = f"there is no function {assignment.name}"
        return [Verdict(assignment.name, "exercise", law.expected, "broken", missing) for law in assignment.laws]
    faults = [_fault(law, solution, assignment.right, file, seconds) for law in assignment.laws]
    return [
        Verdict(assignment.name, "exercise", law.expected, "broken" if fault else "holds", fault)
        for law, fault in zip(assignment.laws, faults, strict=True)
    ]


def _fault(law: Law, solution: Solution, right: Solution, file: str, seconds: float) -> str:
    """What is wrong about a student's function, or its error in a line; '' if nothing is."""
    expected = known(law, right)
    try:
        with contained(), _limited(seconds):
            return law.fault(expected, law.measure(solution))
    except Exception as error:  # whatever the student's own code raises
        return describe_error(error, file)


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Interrupt code of this thread, the main one, that takes longer."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"not done after {seconds:g} s: is there a loop without an end?")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
