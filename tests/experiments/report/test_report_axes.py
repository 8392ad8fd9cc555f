"""Axes on which one variant would squeeze the others, and legends that filter."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure as Canvas

from commeff import topologies
from commeff.experiments.cli import main
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.statistics import Estimate
from commeff.experiments.report.draw import axes as axes_of
from commeff.experiments.report.draw import panels
from commeff.experiments.report.draw.figures import QUIET, look
from commeff.experiments.report.draw.networks import UsedTopology
from commeff.experiments.report.draw.panels import Line, Spot
from commeff.experiments.report.draw.plots import drawings, figures
from commeff.experiments.report.write import html, writing
from tests.experiments.report.report_stores import Forged, forge

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
    ends = [Estimate(value, 0.005, 3) for value in (0.1, 0.93, 0.95, 0.96)]
    spots = [Spot(i, f"v{i}", look(i), 10.0**i, end) for i, end in enumerate(ends)]
    panels.tradeoff(axes, spots, "val_accuracy", None)
    heights = [axes.transAxes.inverted().transform(axes.transData.transform((s.cost, s.final.mean)))[1] for s in spots]
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


def test_labels_are_measured_by_one_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    inner = RendererAgg.__init__
    monkeypatch.setattr(RendererAgg, "__init__", lambda self, *size: made.append(size) or inner(self, *size))
    axes = Canvas().add_axes((0.1, 0.1, 0.8, 0.8))
    panels.write_labels(axes, [panels.Label(i / 9, i / 9, f"v{i}", "black", i) for i in range(9)])
    assert (len(axes.texts), len(made)) == (9, 1)


def test_a_figure_has_no_more_panels_than_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [UsedTopology(f"v{i}", topologies.ring(4), ()) for i in range(3)]
    networks.append(UsedTopology("all", topologies.complete(160), ()))
    (drawn,) = drawings(networks)
    assert "Not drawn, with more than 20,000 messages a step: all." in drawn.caption
    monkeypatch.setattr(writing, "MOST", 2)
    bounded = writing._bounded(drawn)
    assert [panel.name for panel in bounded.panels] == ["0", "1"]
    assert bounded.caption.endswith("The first 2 of 3 panels; the data are complete.")


@pytest.mark.parametrize("huge", [1e308, -1e308, math.inf])
def test_a_run_that_cannot_be_drawn_is_named_and_the_rest_is_written(
    huge: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(writing, "write", lambda figure, folder, settings: None)
    wild, crowd, *_ = runs = [Forged("psgd"), Forged("dsgd"), Forged("choco"), Forged("psgd", 1)]
    store = forge(tmp_path, runs)
    losses = {1: huge, 2: 1e-300, 3: 5e-324, 4: 0.5}
    rows = [{"step": step, "val_loss": loss, "wire_bytes": loss, "val_accuracy": loss} for step, loss in losses.items()]
    (store / wild.name / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    config = store / crowd.name / "config.yaml"
    config.write_text(config.read_text().replace("n: 4", f"n: {10**9}").replace("workers: 4", f"workers: {10**9}"))
    other = store / runs[2].name / "config.yaml"
    other.write_text(other.read_text().replace("n: 4", f"n: {10**9}"))
    with pytest.raises(SystemExit) as end:
        main(["report", str(store)])
    lines = [
        f"{wild.name}: numbers larger than 1e+100 are left out, in val_accuracy, val_loss, wire_bytes",
        f"{crowd.name} is left out: it has 1,000,000,000 workers, more than 100,000",
    ]
    assert end.value.code == 0
    assert sorted(capsys.readouterr().err.splitlines()) == sorted(f"commeff: {line}" for line in lines)
    page = (store / "report" / "report.html").read_text()
    assert all(line in page for line in [*lines, "topologies of at most 2,048 workers, got 1,000,000,000"])
    assert page.count("<svg") > 10
