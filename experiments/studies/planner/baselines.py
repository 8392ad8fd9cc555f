"""What knows no physics, beside the planner: a constant and a regression on each measured table, both held out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from commeff.experiments.studies.planner import published
from commeff.experiments.studies.planner.fit import mape

VTRAIN_COLUMNS = ("batch", "micro_batch", "hidden", "layers", "tp", "dp", "pp")


def baselines() -> pd.DataFrame:
    """The median of a column, and a log-linear regression on others. Held out is a row at a time, for the regression of
    vtrain_single.csv a fifth of the rows.
    """
    return pd.DataFrame(
        [
            {"table": table, "baseline": name, **{how: mape(relative) for how, relative in errors.items()}}
            for table, name, errors in (
                ("megatron2021", "constant", constant("megatron2021", "tflops_per_gpu")),
                ("megatron2021", "regression", regressed("megatron2021", "tflops_per_gpu", ("params_b", "gpus"), 10)),
                ("vtrain_single", "constant", constant("vtrain_single", "iter_time_ms")),
                ("vtrain_single", "regression", regressed("vtrain_single", "iter_time_ms", VTRAIN_COLUMNS, 5)),
                ("korthikanti2022_layer", "constant", layer_constant()),
            )
        ]
    )


def constant(table: str, column: str) -> dict[str, NDArray[np.float64]]:
    """Relative errors of the median of all rows, and of that of all other rows."""
    measured = numbers(table, column)
    others = [np.median(np.delete(measured, place)) for place in range(len(measured))]
    return {"in-sample": np.median(measured) / measured - 1, "held out": np.array(others) / measured - 1}


def layer_constant() -> dict[str, NDArray[np.float64]]:
    """The errors of `constant` on korthikanti2022_layer.csv, forward and backward apart."""
    parts = [constant("korthikanti2022_layer", f"{part}_ms") for part in ("forward", "backward")]
    return {how: np.concatenate([part[how] for part in parts]) for how in parts[0]}


def regressed(table: str, column: str, by: Sequence[str], folds: int) -> dict[str, NDArray[np.float64]]:
    """Relative errors of a regression of logarithms, in-sample and by cross-validation."""
    x, y = np.log([numbers(table, name) for name in by]).T, np.log(numbers(table, column))
    fold = np.random.default_rng(0).permutation(len(y)) % folds
    held_out = np.empty_like(y)
    for part in range(folds):
        held_out[fold == part] = regression(x[fold != part], y[fold != part], x[fold == part])
    return {"in-sample": np.expm1(regression(x, y, x) - y), "held out": np.expm1(held_out - y)}


def numbers(table: str, column: str) -> NDArray[np.float64]:
    """A column of a table.

    >>> numbers("korthikanti2022_layer", "forward_ms").tolist()
    [7.7, 7.2, 7.7, 7.7, 7.2]
    """
    return np.asarray(published.table(table)[column], dtype=float)


def held_out(fits: pd.DataFrame, baselines: pd.DataFrame) -> pd.DataFrame:
    """Each table's error by the fit that has not seen it, the baselines' held out, and last the constants that ship."""
    errors = fits.set_index("fit")
    baseline_errors = baselines.set_index(["table", "baseline"])["held out"]
    words = {"none": "nothing recomputed", "full": "everything recomputed"}
    readings = [("vtrain_single", words[name], f"vtrain_mape_if_{name}") for name in published.READINGS]
    tables = [
        ("megatron2021", "", "megatron_mape"),
        *readings,
        ("korthikanti2022_layer", "", "korthikanti_mape"),
    ]
    return pd.DataFrame(
        [
            {
                "table": table,
                "reading": reading,
                "held out": errors.loc[f"without {table}", column],
                "constant, held out": baseline_errors[table, "constant"],
                "regression, held out": baseline_errors.get((table, "regression"), ""),
                "in-sample, as shipped": errors.loc["shipped", column],
            }
            for table, reading, column in tables
        ]
    )


def regression(x: NDArray[np.float64], y: NDArray[np.float64], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with an intercept, evaluated elsewhere.

    >>> regression(np.array([[0.0], [1.0]]), np.array([1.0, 3.0]), np.array([[2.0]])).round(6)
    array([5.])
    """
    ones = np.ones((len(x), 1))
    weights = np.linalg.lstsq(np.hstack([x, ones]), y, rcond=None)[0]
    return np.asarray(np.hstack([at, np.ones((len(at), 1))]) @ weights)
