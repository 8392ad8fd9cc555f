"""A user's own measured steps: two numbers that make the planner's machine theirs, and how far it is off then."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from commeff.experiments.config.plugins import Choice
from commeff.experiments.planning.question import Question, read_question
from commeff.planner import Policy

MEASURED = "step_seconds"  # the column of seconds; all others are keys of `commeff plan`
LEAST = 4  # steps: two to fit, and two that are held out
BOUNDS = ((0.1, 1.16), (0.05, 50.0))  # of efficiency, which is at most all of the data sheet; and of latency


class Calibration(NamedTuple):
    """Factors of the planner's constants.

    Attributes
    ----------
    efficiency : of the shares of peak FLOP/s and of memory bandwidth that kernels reach.
    latency : of the seconds of a kernel's launch, and of a message in a node and between nodes.
    """

    efficiency: float = 1.0
    latency: float = 1.0

    def of(self, question: Question) -> Question:
        """The question on the calibrated machine."""
        base, cluster = question.constants, question.cluster
        constants = replace(
            base,
            gemm_efficiency=self.efficiency * base.gemm_efficiency,
            memory_efficiency=self.efficiency * base.memory_efficiency,
            kernel_seconds=self.latency * base.kernel_seconds,
        )
        return replace(question, cluster=cluster.with_latency(self.latency, self.latency), constants=constants)


class MeasuredStep(NamedTuple):
    """A policy, and the seconds of a step that somebody measured."""

    question: Question
    policy: Policy
    seconds: float


def read_steps(path: Path, words: Sequence[str], plugins: Sequence[Choice] = ()) -> list[MeasuredStep]:
    """The rows of a table. Its cells are settings of `commeff plan`, which add to `words`; empty ones are left out.

    Rows of equal settings are one step, of their geometric mean: what a fit has seen is not held out.

    Parameters
    ----------
    path : a CSV file with a column step_seconds.
    words : `key=value` of all rows.
    plugins : methods, compressors and topologies beside the built-in ones.
    """
    try:
        table = csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines(), restval="")
        rows, columns = list(table), [column.strip() for column in table.fieldnames or ()]
    except (csv.Error, UnicodeDecodeError):
        raise ValueError(f"{path}: must be a CSV table with a column {MEASURED}") from None
    if MEASURED not in columns or len({*columns}) < len(columns):
        raise ValueError(
            f"{path}: must have a column {MEASURED} and each column once, got {', '.join(columns) or None}"
        )
    steps = [_read_step(f"{path}, row {number}", row, words, plugins) for number, row in enumerate(rows, 1)]
    same: dict[str, list[MeasuredStep]] = defaultdict(list)
    for step in steps:
        same[repr((step.question, step.policy))].append(step)
    if len(same) < LEAST:
        raise ValueError(
            f"{path}: must hold at least {LEAST} different measured steps, got {len(same)}: half of them are held out"
        )
    return [repeats[0]._replace(seconds=geometric_mean(step.seconds for step in repeats)) for repeats in same.values()]


def _read_step(where: str, row: dict[str, str], words: Sequence[str], plugins: Sequence[Choice]) -> MeasuredStep:
    if None in row:
        raise ValueError(f"{where}: must have a cell for each column, got more")
    cells = {key.strip(): value.strip() for key, value in row.items()}
    try:
        seconds = float(cells[MEASURED])
    except ValueError:
        seconds = float("nan")
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{where}: {MEASURED} must be a number of seconds above 0, got {cells[MEASURED]!r}")
    del cells[MEASURED]
    try:
        question = read_question([*words, *(f"{key}={value}" for key, value in cells.items() if value)], plugins)
        policy = question.one()
        policy.check(question.model, question.cluster, question.global_batch)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return MeasuredStep(question, policy, seconds)


def errors(steps: Sequence[MeasuredStep], calibration: Calibration) -> NDArray[np.float64]:
    """log(predicted / measured) of each step."""
    predicted = [calibration.of(step.question).predict(step.policy).step_seconds for step in steps]
    return np.log(np.array(predicted) / [step.seconds for step in steps])


def fitted(steps: Sequence[MeasuredStep]) -> Calibration:
    """The factors with the least sum of squared errors."""
    lower, upper = np.log(BOUNDS).T

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        return errors(steps, Calibration(*map(float, np.exp(logs))))

    return Calibration(*np.exp(least_squares(residuals, np.zeros(2), bounds=(lower, upper), diff_step=1e-3).x).tolist())


def percent(residuals: NDArray[np.float64]) -> float:
    """The mean absolute relative error of predictions, in percent."""
    return 100 * float(np.abs(np.exp(residuals) - 1).mean())


def calibrated(steps: Sequence[MeasuredStep]) -> tuple[Calibration, str]:
    """The factors that fit all steps, and what was found of those held out: every second one, a fit of the others."""
    half, rest = steps[::2], steps[1::2]
    trial, calibration = fitted(half), fitted(steps)
    seen, plain = (percent(errors(rest, calibration)) for calibration in (trial, Calibration()))
    far = any(np.isclose(end, value) for value, ends in zip(calibration, BOUNDS, strict=True) for end in ends)
    doubt = "\na factor is at its bound: something else differs from the measured machine" if far else ""
    return calibration, (
        f"calibrated with {len(steps)} measured steps: efficiency x {calibration.efficiency:.3g}, "
        f"latency x {calibration.latency:.3g}\n"
        f"a fit of {len(half)} of them is {seen:.1f} % off on the other {len(rest)}, and no calibration {plain:.1f} %"
        + ("" if seen < plain else ": it does not help, leave it out")
        + doubt
    )
