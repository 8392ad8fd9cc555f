"""Losses over orders of magnitude: three digits of each, and means, intervals and tests of their logarithms."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.quantities import quantity
from commeff.experiments.report.data.statistics import Estimate, estimate, mean_curve, paired
from commeff.experiments.report.data.summary import findings
from commeff.experiments.report.draw.plots import convergence, tradeoff
from commeff.experiments.report.write import cells
from commeff.experiments.report.write.table_main import main_tables
from tests.experiments.report.report_stores import Forged, forge


def store_of(folder: Path, losses: Mapping[str, tuple[float, ...]]) -> Path:
    """Runs with these final validation losses, by method and seed; they fall from 1 in equal factors."""
    runs = [Forged(method, seed) for method, own in losses.items() for seed in range(len(own))]
    forge(folder, runs, select=None, target={})
    for run in runs:
        place, end = folder / run.name, losses[run.method][run.seed]
        rows = [row | {"val_loss": end ** (row["step"] / run.curve[-1]["step"])} for row in run.curve]
        (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        summary = json.loads((place / "summary.json").read_text())
        (place / "summary.json").write_text(json.dumps(summary | {"val_loss": end}))
    return folder


DECADES = {"psgd": (5e-2, 4e-6, 1e-4), "dsgd": (1e-4, 8.2e-9, 2e-7)}  # 500-fold, with every seed


def test_a_difference_of_500_fold_in_every_seed_is_seen(tmp_path: Path) -> None:
    analysis = analyse(store_of(tmp_path, DECADES), metric="val_loss")
    psgd, dsgd = analysis.rows
    assert not any("not separated" in line for line in findings(analysis))
    assert psgd.from_best is not None
    assert dsgd.difference is not None
    assert psgd.from_best.tells
    assert dsgd.difference.tells
    assert dsgd.difference.mean == pytest.approx(1 / 500, rel=0.03)
    plain = paired(dsgd.variant.finals("val_loss"), psgd.variant.finals("val_loss"))
    assert plain is not None
    assert not plain.tells  # which the difference itself does not show


def test_the_table_has_three_digits_and_the_interval_of_the_logarithms(tmp_path: Path) -> None:
    analysis = analyse(store_of(tmp_path, DECADES), metric="val_loss")
    main = main_tables(analysis)[0]
    loss = next(column for column in main.columns if column.heading == "val. loss")
    ratio = next(column for column in main.columns if column.heading == "/ baseline")
    middle = math.exp(np.log(DECADES["psgd"]).mean())
    assert loss.items[0].plain.startswith(f"{middle:.6f}"[:8])
    assert "not determined" in loss.items[0].plain  # three seeds over four decades
    assert ratio.items[1].plain.startswith("0.00202× (")
    assert any("means are geometric" in note for note in main.notes)
    assert {"val_loss_low", "val_loss_high", "val_loss_over_baseline"} <= {*main.data.columns}


def test_losses_of_one_size_are_compared_by_their_difference(tmp_path: Path) -> None:
    analysis = analyse(store_of(tmp_path, {"psgd": (0.5, 0.6, 0.7), "dsgd": (0.4, 0.5, 0.6)}), metric="val_loss")
    difference = analysis.rows[1].difference
    assert difference is not None
    assert (difference.log, round(difference.mean, 9), difference.half) == (False, -0.1, 0.0)


@pytest.mark.parametrize("size", [1e-3, 1e-5, 3e-8])
def test_no_number_but_0_is_shown_as_0(size: float) -> None:
    column = [Estimate(size, size / 100, 3), Estimate(0.4, 0.01, 3), None]
    for made in (cells.estimates(column, quantity("val_loss")), cells.differences(column, quantity("val_loss"))):
        assert float(made[0].text.replace("−", "-")) == pytest.approx(size, rel=5e-3)
        assert float(made[0].half.replace("−", "-")) == pytest.approx(size / 100, rel=5e-2)


def test_an_interval_without_width_says_why(tmp_path: Path) -> None:
    analysis = analyse(store_of(tmp_path, {"psgd": (0.5, 0.5, 0.5), "dsgd": (0.4, 0.5, 0.6)}), metric="val_loss")
    main = cells.explained(main_tables(analysis)[0])
    loss = next(column for column in main.columns if column.heading == "val. loss")
    assert [cells.EQUAL in item.mark for item in loss.items] == [True, False, False]  # the last counts 16-bit bytes
    assert loss.items[0].half == "0"
    assert cells.WHY_EQUAL in main.notes
    assert cells.WHY_EQUAL in main.marked()


def test_curves_on_a_logarithmic_axis_are_means_of_logarithms(tmp_path: Path) -> None:
    analysis = analyse(store_of(tmp_path, DECADES), metric="val_loss")
    curves = analysis.variants[0].curves
    means = mean_curve(curves, "step", "val_loss", log=True)
    last = means.iloc[-1]
    found = estimate(DECADES["psgd"], log=True)
    assert found is not None
    assert (last["y"], last["low"], last["high"]) == pytest.approx((found.mean, *found.ends))
    figure, spots = convergence(analysis), tradeoff(analysis)
    assert figure is not None
    assert spots is not None
    lines = figure.panels[0].draw.keywords["lines"]
    assert lines[0].means["y"].iloc[-1] == pytest.approx(found.mean)
    assert spots.panels[0].draw.keywords["spots"][0].final == found
