"""The planner against the measured tables, with the constants that ship."""

from __future__ import annotations

import numpy as np
import pytest

from commeff.experiments.published.planner import lectures, measured
from commeff.experiments.published.planner.fit import BOUNDS, Measured, fit, mape
from commeff.experiments.published.planner.report import markdown, targets
from commeff.planner import MEASURED


@pytest.fixture(scope="module")
def tables() -> Measured:
    return Measured()


def test_the_measured_tables_are_met(tables):
    errors = tables.errors(MEASURED)
    assert {reading: mape(found) < 15 for reading, found in errors.vtrain.items()} == {"none": True, "full": True}
    assert np.abs(errors.korthikanti).max() < 0.10
    assert mape(errors.megatron) < 6
    assert errors.spearman >= 0.8


def test_at_most_eight_constants_are_shared_and_inside_their_bounds():
    assert len(vars(MEASURED)) <= 8
    for name, (low, high) in BOUNDS.items():
        assert low <= getattr(MEASURED, name) <= high


def test_a_fit_lowers_the_error_of_what_it_is_given(tables):
    name = "korthikanti2022_layer"
    before, after = (fit(tables, [name], evaluations) for evaluations in (1, 60))
    assert mape(tables.of_table(name, after)) < mape(tables.of_table(name, before))


def test_the_event_loop_equals_the_bubble_formulas():
    table = lectures.bubbles()
    assert np.allclose(table.event_loop, table.formula, rtol=1e-12)
    fill = table[table.schedule.isin(["gpipe", "1f1b"])]
    assert np.allclose(fill.formula, fill.lecture)


def test_baselines_are_those_that_the_issue_quotes():
    found = measured.baselines().set_index("baseline").mape
    assert found["constant"] == pytest.approx(5.4, abs=0.05)
    assert 17 <= found["log-linear regression"] <= 19


def test_the_lectures_70b_is_predicted_and_fits():
    found = measured.llama2_70b()
    assert found.fits.all()
    assert (found.step_s > 0).all()


def test_targets_are_read_off_the_shipped_constants(tables):
    import pandas as pd

    found = targets(pd.DataFrame([{"fit": "shipped", **measured.score(tables.errors(MEASURED))}]))
    assert markdown(found).count("\n") == len(found) + 1
