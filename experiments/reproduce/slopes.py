"""How a quantity grows: the slope of a line through all cases of a variant, for each seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from commeff.experiments.reproduce import quantities
from commeff.experiments.reproduce.constants import CaseView, number_of
from commeff.experiments.reproduce.faults import TableError
from commeff.experiments.reproduce.places import TableVariant
from commeff.experiments.reproduce.results import CaseResult
from commeff.experiments.reproduce.values import TableVerdict, Value
from commeff.experiments.reproduce.verdicts import UNTOLD, Told
from commeff.experiments.reproduce.words import TableQuantity, quantity


@dataclass(frozen=True, eq=False)
class Slope:
    """Of `y` over `x`, a label or a function of the case; `log` are the axes that are logarithmic."""

    y: TableQuantity
    x: str | Callable[[Any], Any]
    log: str

    def __call__(self, variant: TableVariant) -> Value:
        """Its value, from all cases of a variant at a place; a seed that lacks a point has no say."""
        table = variant.results.table
        table.check_quantity(self.y)
        places = [self._place(variant, result) for result in variant.every]
        found = variant.every if any(result.seen for result in variant.every) else []
        if not found:
            return variant.absent()
        points = [self.y.by_seed(variant.results, result) for result in found]
        seeds = sorted(set[int]().union(*(result.seen for result in found)))
        heights = {seed: [self._on("y", point.get(seed, math.nan)) for point in points] for seed in seeds}
        left_out: dict[int, str] = {}
        for result, column in zip(found, zip(*heights.values(), strict=True), strict=True):
            what = " ".join([result.case.name, *(f"{key}={label}" for key, label in result.labels.items())])
            silent = [seed for seed, height in zip(seeds, column, strict=True) if not math.isfinite(height)]
            left_out = {**dict.fromkeys(silent, what), **left_out}
        whole = {seed: each for seed, each in heights.items() if all(map(math.isfinite, each))}
        slopes = {seed: quantities.slope(np.array(places), np.array(each)) for seed, each in whole.items()}
        if any(map(math.isfinite, slopes.values())):
            return Value(slopes, left_out, variant.place, table.exact)
        none = TableVerdict(Told(UNTOLD, "no seed has a number at every point of a line"), left_out)
        return Value({}, {}, variant.place, table.exact, none.words)

    def _place(self, variant: TableVariant, result: CaseResult) -> float:
        view = CaseView(variant.results.table, result.case)
        found = view[self.x] if isinstance(self.x, str) else self.x(view)
        return self._on("x", number_of(found, "the second argument of slope"))

    def _on(self, axis: str, number: float) -> float:
        """Where a number stands on an axis; NaN where it has no logarithm."""
        if axis not in self.log:
            return number
        return math.log(number) if 0 < number < math.inf else math.nan


def slope(y: str | TableQuantity, x: str | Callable[[Any], Any], log: str = "xy") -> Slope:
    """The slope of a quantity over a label, of a line of least squares in logarithms: slope(gap, "lr")(r.dsgd).

    With `log` "x", "y" or "" one axis or none is logarithmic.
    """
    if log not in ("", "x", "y", "xy"):
        raise TableError(f"log must be x, y or xy, got {log!r}")
    return Slope(quantity(y), x, log)
