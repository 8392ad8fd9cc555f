"""The fit of four global constants on three tables, and what happens to a table that is left out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commeff.experiments.studies.planner import published
from commeff.planner import MEASURED, Constants

# What is plausible. Streams reach 0.85 of an A100's memory bandwidth. Eager PyTorch issues a plain GPT layer of 42
# kernels forward and 48 backward in 0.7 ms on this project's CPU (measured), and a launch takes 5 us: at least 22 us
# for each of the 52 that `block` counts, as Megatron's layers do more.
BOUNDS = {
    "gemm_efficiency": (0.6, 0.98),
    "gemm_ramp": (8.0, 128.0),
    "memory_efficiency": (0.6, 0.85),
    "kernel_seconds": (22e-6, 1e-4),
}
PULL = 0.02  # of the middle of the bounds: what the tables hardly tell stays there
TABLES = ("vtrain_single", "korthikanti2022_layer", "megatron2021")


@dataclass(frozen=True, eq=False)
class Errors:
    """Relative errors, prediction / measurement - 1, and the rank correlation of megatron2021.csv.

    Attributes
    ----------
    vtrain : of vtrain_single.csv, by reading of its recomputation.
    korthikanti : of korthikanti2022_layer.csv.
    megatron : of megatron2021.csv.
    spearman : rank correlation of megatron2021.csv.
    """

    vtrain: dict[str, NDArray[np.float64]]  # under each reading of what is recomputed
    korthikanti: NDArray[np.float64]  # forward and backward, (5, 2)
    megatron: NDArray[np.float64]  # of TFLOP/s
    spearman: float


def mape(errors: NDArray[np.float64]) -> float:
    """Mean absolute error in percent.

    >>> mape(np.array([0.1, -0.3]))
    20.0
    """
    return 100 * float(np.abs(errors).mean())


class Measured:
    """The three tables, read once, to be predicted with many constants."""

    def __init__(self) -> None:
        self._vtrain = {reading: published.vtrain(reading) for reading in published.READINGS}
        self._korthikanti = published.korthikanti()
        self._megatron = published.megatron()

    def errors(self, constants: Constants) -> Errors:
        """Errors of a choice of constants in all tables."""
        reached = self._megatron_tflops(constants)
        measured = self._megatron[1]
        return Errors(
            {reading: self._vtrain_errors(reading, constants) for reading in self._vtrain},
            self._korthikanti_errors(constants),
            reached / measured - 1,
            rank_correlation(reached, measured),
        )

    def of_table(self, table: str, constants: Constants) -> NDArray[np.float64]:
        """Errors in one table, flat; both readings of vtrain_single.csv one after the other."""
        if table == "vtrain_single":
            return np.concatenate([self._vtrain_errors(reading, constants) for reading in self._vtrain])
        if table == "korthikanti2022_layer":
            return self._korthikanti_errors(constants).ravel()
        return self._megatron_tflops(constants) / self._megatron[1] - 1

    def _vtrain_errors(self, reading: str, constants: Constants) -> NDArray[np.float64]:
        cases, seconds = self._vtrain[reading]
        return published.step_seconds(cases, constants) / seconds - 1

    def _korthikanti_errors(self, constants: Constants) -> NDArray[np.float64]:
        cases, seconds = self._korthikanti
        return np.array([published.layer_seconds(case, constants) for case in cases]) / seconds - 1

    def _megatron_tflops(self, constants: Constants) -> NDArray[np.float64]:
        cases, _ = self._megatron
        return np.array([published.tflops(case, published.megatron_best(case, constants)[0]) for case in cases])


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Spearman's correlation, ties sharing their mean rank.

    >>> rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 10.0, 30.0]))
    0.8660254037844387
    """
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic)


def _ratios(measured: Measured, table: str, constants: Constants) -> NDArray[np.float64]:
    """Measured over predicted seconds of every row of a table."""
    ratio = 1 + measured.of_table(table, constants)
    return ratio if table == "megatron2021" else 1 / ratio  # its errors are of a rate


def spread(measured: Measured, left_out: Mapping[str, Constants]) -> tuple[float, float]:
    """The 5th and the 95th percentile of measured over predicted seconds, of tables by constants that have not seen
    them; every table weighs the same.
    """
    ratios = [_ratios(measured, table, constants) for table, constants in left_out.items()]
    weights = np.concatenate([np.full(len(ratio), 1 / len(ratio)) for ratio in ratios])
    low, high = np.quantile(np.concatenate(ratios), (0.05, 0.95), weights=weights, method="inverted_cdf")
    return float(low), float(high)


def fit(measured: Measured, tables: Collection[str] = TABLES, evaluations: int = 600) -> Constants:
    """Constants with the least sum over `tables` of the mean absolute logarithm of prediction over measurement.

    Every table weighs the same, whether it has 5 rows or 1440. A constant at its lower or upper bound adds `PULL`: a
    table that is left out may be the only one that tells it. Nelder-Mead on logarithms within `BOUNDS`, from their
    middle, so that no fit begins where another ended.
    """
    from scipy.optimize import minimize

    names = list(BOUNDS)

    def constants(x: NDArray[np.float64]) -> Constants:
        return replace(MEASURED, **{name: float(np.exp(value)) for name, value in zip(names, x, strict=True)})

    def loss(x: NDArray[np.float64]) -> float:
        errors = (measured.of_table(table, constants(x)) for table in tables)
        error = sum(float(np.abs(np.log1p(relative)).mean()) for relative in errors)
        return error + PULL * float((((x - start) / half) ** 2).sum())

    limits = [(float(np.log(low)), float(np.log(high))) for low, high in BOUNDS.values()]
    start, half = np.mean(limits, axis=1), np.ptp(limits, axis=1) / 2
    options = {"maxfev": evaluations, "xatol": 1e-3, "fatol": 1e-5, "adaptive": True}
    solution = minimize(loss, start, method="Nelder-Mead", bounds=limits, options=options)
    return constants(solution.x)
