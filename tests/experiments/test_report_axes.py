"""Axes on which one variant would squeeze the others, and legends that filter."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.draw import axes as axes_of
from commeff.experiments.report.draw import panels
from commeff.experiments.report.draw.figures import QUIET, look
from commeff.experiments.report.draw.panels import Line, Spot
from commeff.experiments.report.draw.plots import figures
from commeff.experiments.report.write import html, writing
from tests.experiments.report_stores import Forged, forge

STEPS = np.arange(1, 41)


def line(number: int, values: object) -> Line:
    means = pd.DataFrame({"step": STEPS, "x": STEPS, "y": values * np.ones(40), "n": 3})
    return Line(number, f"v{number}", look(number), means.assign(low=means["y"], high=means["y"]))


CLOSE = [line(i, 0.9 + 0.01 * i + STEPS / 1000) for i in range(3)]
LOSSES = [line(i, 2.3 * 0.9**STEPS + 0.01 * i) for i in range(3)]


@pytest.mark.parametrize(
    ("close", "far", "metric"),
    [
        (CLOSE, line(3, 0.1), "val_accuracy"),
        (LOSSES, line(3, 10.0**STEPS), "val_loss"),
        (LOSSES, line(3, 1e-30), "consensus_distance"),
        ([line(i, -10 - i * STEPS / 40) for i in range(3)], line(3, 1e4), "reward"),
    ],
)
def test_one_variant_far_from_the_others_does_not_squeeze_them(close: list[Line], far: Line, metric: str) -> None:
    """They have most of the axis, and it is on it too, beyond a dashed line."""
    figure, axes = plt.subplots()
    panels.curves(axes, [*close, far], "step", metric)
    ends = np.concatenate([each.means["y"].to_numpy()[6:] for each in close])
    top, bottom = (axes.transData.transform((1.0, end))[1] for end in (ends.max(), ends.min()))
    assert top - bottom > 0.5 * axes.bbox.height
    assert axes.bbox.y0 <= bottom < top <= axes.bbox.y1
    height = axes.transAxes.inverted().transform(axes.transData.transform((1.0, far.means["y"].iloc[-1])))[1]
    assert 0 <= height <= 1 or metric == "consensus_distance"
    assert sum(drawn.get_color() == QUIET for drawn in axes.lines) == 1, "a line says where the axis is broken"
    assert panels.line_limits([*close, far], metric).broken
    plt.close(figure)


def test_an_axis_that_nobody_squeezes_is_whole() -> None:
    figure, axes = plt.subplots()
    spread = [line(i, 0.2 + 0.2 * i) for i in range(4)]
    panels.curves(axes, spread, "step", "val_accuracy")
    assert axes.get_yscale() == "linear"
    for lines in (spread, CLOSE, CLOSE[:1], [CLOSE[0], line(3, 0.1)], [*CLOSE[:2], line(2, 0.1), line(3, 0.11)]):
        assert not panels.line_limits(lines, "val_accuracy").broken
    plt.close(figure)


@pytest.mark.parametrize("logarithm", [False, True])
def test_a_broken_axis_can_be_read_both_ways(logarithm: bool) -> None:
    figure, axes = plt.subplots()
    shown = axes_of.limits([(1.0, 2.0), (1.1, 2.1), (1.2, 2.2), (1e-9, 1.0), (1.0, 1e9)], logarithm=logarithm)
    axes_of.fit(axes, "y", shown)
    values = np.geomspace(1e-9, 1e9, 50)
    scale = axes.yaxis.get_transform()
    at = scale.transform(values)
    assert (np.diff(at) > 0).all()
    assert scale.inverted().transform(at) == pytest.approx(values, rel=1e-6, abs=1e-6)
    plt.close(figure)


def test_a_final_value_far_off_does_not_squeeze_the_tradeoff() -> None:
    figure, axes = plt.subplots()
    spots = [Spot(i, f"v{i}", look(i), 10.0**i, value, 0.005) for i, value in enumerate((0.1, 0.93, 0.95, 0.96))]
    panels.tradeoff(axes, spots, "val_accuracy", None)
    heights = [axes.transAxes.inverted().transform(axes.transData.transform((s.cost, s.value)))[1] for s in spots]
    assert 0 < heights[0] < 0.15 < heights[1]
    assert heights[3] - heights[1] > 0.4
    plt.close(figure)


def test_every_entry_of_a_legend_has_something_to_filter(tmp_path: Path) -> None:
    runs = [Forged(method, seed, accuracy=0.9) for method in ("psgd", "dsgd", "choco") for seed in (0, 1)]
    analysis = analyse(forge(tmp_path, runs))
    tables = {table.name: table for table in writing._tables(analysis, [], None)}
    (front,) = (figure for figure in figures(analysis) if figure.name == "pareto")
    page = html.page(analysis, tables, {"pareto": front}, [], tmp_path)
    numbers = {*re.findall(r'<button type="button" data-variant="(\d+)"', page)}
    assert numbers == {"0", "1", "2"}
    for number in numbers:
        assert f'class="series s{number}"' in page
        assert f'<tr class="line" data-variant="{number}"' in page
