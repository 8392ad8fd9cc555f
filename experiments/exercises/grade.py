"""A student's file judged: a verdict for each law, and which misreading it is where one gives the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

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
IMPURE = "it gives another answer when it is asked again: keep nothing outside the function"


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
    runs = [_measured(law, solution, file, seconds) for law in assignment.laws]
    faults = [
        answers if isinstance(answers, str) else law.fault(known(law, assignment.right), answers)
        for law, answers in zip(assignment.laws, runs, strict=True)
    ]
    reason = _diagnosis(assignment, solution, runs, seconds) if any(faults) else ""
    return [
        Verdict(assignment.name, "exercise", law.expected, "broken", "; ".join(filter(None, (fault, reason))))
        if fault
        else Verdict(assignment.name, "exercise", law.expected, "holds")
        for law, fault in zip(assignment.laws, faults, strict=True)
    ]


def _measured(law: Law, solution: Solution, file: str, seconds: float) -> Mapping[str, Any] | str:
    """The results of a student's function, or its error in a line."""
    try:
        with contained(), _limited(seconds):
            answers = law.measure(solution)
            law.fault(answers, answers)  # of numbers and words, or refused here
            return answers
    except Exception as error:  # whatever the student's own code raises
        return describe_error(error, file)


def _diagnosis(assignment: Assignment, solution: Solution, runs: list[Mapping[str, Any] | str], seconds: float) -> str:
    """The sentence on the misreading that gives all that the function gives; '' if none does, or it gives errors."""
    measured = [(law, got) for law, got in zip(assignment.laws, runs, strict=True) if not isinstance(got, str)]
    if len(measured) < len(runs):
        return ""
    for law, got in measured:
        repeated = _measured(law, solution, "", seconds)
        if isinstance(repeated, str) or Law("", law.measure, 0.0).fault(got, repeated):
            return IMPURE
    for sentence, mistaken in assignment.mistaken.items():
        if not any(law.fault(known(law, mistaken), got) for law, got in measured):
            return sentence
    return ""


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
