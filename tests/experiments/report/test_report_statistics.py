"""What the report claims about seeds: intervals, pairing, fronts, first crossings."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from commeff.experiments.report.data.quantities import decimals, fixed, quantity, significant, spread
from commeff.experiments.report.data.statistics import (
    Estimate,
    best,
    estimate,
    first_reached,
    mean_curve,
    paired,
    pareto_front,
)


@pytest.mark.parametrize("n", [2, 3, 7, 40])
def test_the_interval_is_students(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    low, high = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
    found = estimate(values)
    assert found is not None
    assert found.half is not None
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high), rel=1e-9)


def test_intervals_cover_the_mean_in_nineteen_of_twenty_samples() -> None:
    random = np.random.default_rng(0)
    found = [estimate(random.normal(5.0, 2.0, size=3)) for _ in range(4000)]
    covered = np.mean([abs(each.mean - 5.0) <= each.half for each in found if each and each.half is not None])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_pairing_removes_what_a_seed_does_to_both() -> None:
    """A seed that shifts both by the same leaves the paired difference alone, however large the shift."""
    ours, theirs = {0: 0.91, 1: 0.92, 2: 0.94}, {0: 0.90, 1: 0.90, 2: 0.91}
    shift = {0: 0.0, 1: -3.0, 2: 7.0}
    before = paired(ours, theirs)
    after = paired({s: v + shift[s] for s, v in ours.items()}, {s: v + shift[s] for s, v in theirs.items()})
    unpaired = estimate([v + shift[s] for s, v in ours.items()])
    assert before is not None
    assert after is not None
    assert unpaired is not None
    assert (after.mean, after.half) == pytest.approx((before.mean, before.half))
    assert (before.half or 0) < 0.1 < (unpaired.half or 0)


def test_pairing_goes_by_seed_not_by_place() -> None:
    ours, theirs = {0: 1.0, 1: 2.0, 2: 4.0}, {2: 3.0, 1: 1.0, 0: 0.0}
    found = paired(ours, theirs)
    assert found == Estimate(1.0, 0.0, 3)
    assert paired({0: 1.0, 5: 9.0}, {0: 0.5, 6: 9.0}) == Estimate(0.5, None, 1)
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_swapping_the_two_turns_the_sign() -> None:
    ours, theirs = {0: 0.3, 1: 0.5, 2: 0.1}, {0: 0.2, 1: 0.7, 2: 0.3}
    one, other = paired(ours, theirs), paired(theirs, ours)
    assert one is not None
    assert other is not None
    assert (one.mean, one.half) == pytest.approx((-other.mean, other.half))


@pytest.mark.parametrize("metric", ["val_accuracy", "val_loss"])
def test_the_front_is_what_nothing_beats(metric: str) -> None:
    random = np.random.default_rng(3)
    costs, values = random.uniform(1, 9, 30).round(1).tolist(), random.uniform(size=30).round(2).tolist()
    sign = 1 if metric == "val_accuracy" else -1

    def beaten(i: int) -> bool:
        return any(
            costs[j] <= costs[i]
            and sign * values[j] >= sign * values[i]
            and (costs[j] < costs[i] or sign * values[j] > sign * values[i])
            for j in range(30)
        )

    front = pareto_front(costs, values, metric)
    assert not any(map(beaten, front))
    assert all(beaten(i) for i in range(30) if (costs[i], values[i]) not in {(costs[j], values[j]) for j in front})
    assert [costs[i] for i in front] == sorted(costs[i] for i in front)


def test_the_best_is_high_for_accuracies_and_low_for_losses_and_never_missing() -> None:
    assert best([0.2, 0.9, math.nan, 0.9], "test_accuracy") == 1
    assert best([0.2, 0.9, math.nan], "train_loss") == 0


def test_the_first_crossing_counts_even_if_the_curve_falls_back() -> None:
    curve = pd.DataFrame({"step": [1, 2, 3], "val_loss": [3.0, 1.0, 2.0], "val_accuracy": [0.1, 0.6, 0.5]})
    by_loss, by_accuracy = first_reached(curve, "val_loss", 1.5), first_reached(curve, "val_accuracy", 0.55)
    assert by_loss is not None
    assert by_accuracy is not None
    assert by_loss["step"] == pytest.approx(1.75)  # on the line between two evaluations
    assert by_accuracy["step"] == pytest.approx(1.9)
    first = first_reached(curve, "val_loss", 3.5)
    assert first is not None
    assert first["step"] == 1
    assert first_reached(curve, "val_loss", 0.5) is None
    assert first_reached(curve, "test_loss", 0.5) is None


def test_a_mean_curve_stops_where_a_seed_is_missing() -> None:
    """No jump where a seed ends early: only steps that all seeds have."""
    rows = pd.DataFrame(
        {"run": ["a"] * 3 + ["b"] * 2, "step": [1, 2, 3, 1, 2], "seconds": [1, 2, 3, 3, 4], "y": [9, 8, 7, 1, 2.0]}
    )
    means = mean_curve(rows, "seconds", "y")
    assert means["step"].tolist() == [1, 2]
    assert means["x"].tolist() == [2, 3]
    for row, values in zip(means.itertuples(), ([9, 1], [8, 2]), strict=True):
        found = estimate(values)
        assert found is not None
        assert found.half is not None
        ends = (found.mean, found.mean - found.half, found.mean + found.half)
        assert (row.y, row.low, row.high) == pytest.approx(ends), "bands are the intervals of the tables"


def test_numbers_are_shown_with_the_digits_that_mean_something() -> None:
    accuracy, loss = quantity("val_accuracy"), quantity("val_loss")
    assert decimals([Estimate(0.95, 0.03, 3)], accuracy) == 1
    assert decimals([Estimate(0.95, 0.0003, 3)], accuracy) == 2
    assert decimals([Estimate(0.5, 0.00001, 3)], loss) == 4
    assert (fixed(-0.04, 1), significant(0.00012345), significant(-5.0)) == ("0.0", "0.000123", "−5.00")
    for mean, half in ((123.456, 7.89), (0.012345, 0.000678), (5.0, 40.0)):
        shown, width = spread(mean, half)
        assert float(shown) == pytest.approx(mean, abs=half / 10)
        assert float(width) == pytest.approx(half, rel=0.05)
