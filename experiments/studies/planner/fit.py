"""The fit of four global constants on three tables, and what happens to a table that is left out of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

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

    def of_table(self, table: str, constants: Constants) -> NDArray[np.float64]:
        """Relative errors in one table, prediction / measurement - 1, flat: both readings of vtrain_single.csv one
        after the other, korthikanti2022_layer.csv forward and backward, megatron2021.csv of TFLOP/s.
        """
        if table == "vtrain_single":
            return np.concatenate([self._vtrain_errors(reading, constants) for reading in self._vtrain])
        if table == "korthikanti2022_layer":
            cases, seconds = self._korthikanti
            return (published.layer_seconds(cases, constants) / seconds - 1).ravel()
        return self._megatron_tflops(constants) / self._megatron[1] - 1

    def score(self, constants: Constants) -> dict[str, float]:
        """What the targets speak of, in percent; and Spearman's correlation of megatron2021.csv."""
        from scipy.stats import spearmanr

        korthikanti = self.of_table("korthikanti2022_layer", constants)
        reached, measured = self._megatron_tflops(constants), self._megatron[1]
        return {
            **{f"vtrain_mape_if_{reading}": mape(self._vtrain_errors(reading, constants)) for reading in self._vtrain},
            "korthikanti_mape": mape(korthikanti),
            "korthikanti_worst": 100 * float(np.abs(korthikanti).max()),
            "megatron_mape": mape(reached / measured - 1),
            "megatron_spearman": float(spearmanr(reached, measured).statistic),
        }

    def policies(self, left_out: Mapping[str, Constants]) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """Of tables with several policies of one model: measured seconds, the logarithm of predicted over measured ones
        by constants that have not seen them, and a number for what is trained.
        """
        shape = ["gpus", "batch", "hidden", "heads", "layers", "seq"]
        models = published.table(TABLES[0]).groupby(shape).ngroup().to_numpy()
        for reading, (_, seconds) in self._vtrain.items():
            yield seconds, np.log1p(self._vtrain_errors(reading, left_out[TABLES[0]])), models
        errors = np.log1p(self.of_table(TABLES[1], left_out[TABLES[1]])).reshape(-1, 2)
        for seconds, error in zip(self._korthikanti[1].T, errors.T, strict=True):
            yield seconds, error, np.zeros(len(seconds))

    def _vtrain_errors(self, reading: str, constants: Constants) -> NDArray[np.float64]:
        cases, seconds = self._vtrain[reading]
        return published.step_seconds(cases, constants) / seconds - 1

    def _megatron_tflops(self, constants: Constants) -> NDArray[np.float64]:
        cases, _ = self._megatron
        return np.array([published.tflops(case, published.megatron_best(case, constants)[0]) for case in cases])


def spread(measured: Measured, left_out: Mapping[str, Constants]) -> tuple[float, float]:
    """The 5th and the 95th percentile of measured over predicted seconds, of tables by constants that have not seen
    them; every table weighs the same.
    """
    ratios = []
    for table, constants in left_out.items():
        ratio = 1 + measured.of_table(table, constants)
        ratios.append(ratio if table == "megatron2021" else 1 / ratio)  # its errors are of a rate
    weights = np.concatenate([np.full(len(ratio), 1 / len(ratio)) for ratio in ratios])
    low, high = np.quantile(np.concatenate(ratios), (0.05, 0.95), weights=weights, method="inverted_cdf")
    return float(low), float(high)


def apart(measured: Measured, left_out: Mapping[str, Constants]) -> float:
    """The 90th percentile of predicted over measured ratios of seconds, slower over faster by prediction, of all pairs
    of rows with one model, batch and number of GPUs, by constants that have not seen their table.

    Those are pairs of vtrain_single.csv, by either reading, and a few of korthikanti2022_layer.csv, forward and
    backward; in megatron2021.csv every row is another model.
    """
    errors = []
    for seconds, error, group in measured.policies(left_out):
        first, second = np.triu_indices(len(group), 1)
        alike = group[first] == group[second]
        predicted, wrong = (x[first[alike]] - x[second[alike]] for x in (np.log(seconds) + error, error))
        errors.append(wrong * np.sign(predicted))
    return float(np.exp(np.quantile(np.concatenate(errors), 0.9)))


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
