"""Figures can be read: no names of code in tables' figures, few lines, all text inside, no label upon another."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.statistics import Estimate
from commeff.experiments.report.draw import wallclock
from commeff.experiments.report.draw.figures import STYLE, Panel, canvas, look
from commeff.experiments.report.draw.figures import Figure as Drawn
from commeff.experiments.report.draw.panels import Spot, tradeoff
from commeff.experiments.report.write.writing import draw_all
from commeff.experiments.reproduce.figure import drawing
from commeff.experiments.reproduce.figure import figure as table_figure
from commeff.experiments.reproduce.results import CaseResult, Observation, Results
from commeff.experiments.reproduce.table import PublishedTable, built_in_tables, read_table
from tests.experiments.report.report_stores import Forged, forge

CODE = re.compile(r"[_\[\]{}]|\w=|\w\((?!x\))|\w\.[a-z]")
LINES = 6


@pytest.fixture(autouse=True)
def _style() -> Iterator[None]:
    with mpl.rc_context(STYLE):
        yield


def shown(made: Canvas) -> list[tuple[Text, np.ndarray]]:
    """Every text of a figure, with its box in pixels."""
    renderer = FigureCanvasAgg(made).get_renderer()
    made.draw(renderer)
    texts = [text for text in made.findobj(Text) if text.get_visible() and text.get_text().strip()]
    ticks = {text for axes in made.axes for axis in (axes.xaxis, axes.yaxis) for text in off(axes, axis)}
    return [(text, np.array(Text.get_window_extent(text, renderer).extents)) for text in texts if text not in ticks]


def off(axes: Axes, axis: object) -> list[Text]:
    """Labels of ticks outside the axes, which are not drawn."""
    low, high = sorted(axis.get_view_interval())  # type: ignore[attr-defined]
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]  # type: ignore[attr-defined]
    pad = 1e-9 * (high - low)
    outside = [tick for tick in ticks if not low - pad <= tick.get_loc() <= high + pad]
    return [label for tick in outside for label in (tick.label1, tick.label2)]


def check(made: Canvas) -> list[str]:
    """That all text is inside and no two upon each other; the texts."""
    texts, box = shown(made), made.bbox.extents
    for text, (left, low, right, high) in texts:
        assert min(left - box[0], low - box[1], box[2] - right, box[3] - high) >= -1, text
    for (text, one), (other, two) in combinations(texts, 2):
        common = np.minimum(one[2:], two[2:]) - np.maximum(one[:2], two[:2])
        assert (common <= 1.5).any(), (text, other)
    return [text.get_text() for text, _ in texts]


def forged(table: PublishedTable) -> Results:
    """Three seeds of every case, whose numbers differ."""
    words = table.figure
    assert words is not None
    cases = []
    for place, case in enumerate(table.cases):
        measured = [words.x] if isinstance(words.x, str) and len(table.drawn) > 1 else []
        seen = {}
        for seed in range(3):
            of = [*words.y.metrics, "error", "val_loss", "distance", "consensus_distance"]
            value = math.exp(-0.7 * place - 0.05 * seed)
            curve = {name: value * np.geomspace(1.0, 0.01, 9) for name in of}
            curve |= {name: np.arange(1.0, 10.0) * 100 for name in ("step", *measured)}
            seen[seed] = Observation(dict.fromkeys(of, value), pd.DataFrame(curve))
        cases.append(CaseResult(case, seen, case.labels))
    return Results(table, cases)


@pytest.mark.parametrize("name", built_in_tables())
def test_the_figure_of_a_table_is_legible(name: str) -> None:
    table = read_table(built_in_tables()[name])
    if table.figure is None:
        return
    try:
        found = forged(table)
        panels = drawing(found, table.figure).panels
    except ConfigError as error:
        pytest.skip(f"data are not there: {error}")
    most = max(len(panel.lines) for panel in panels)
    assert most <= LINES, f"{most} lines in a panel: pick by only"
    codes = [text for text in check(canvas(table_figure(found, table.figure))) if CODE.search(text)]
    assert not codes


@pytest.mark.parametrize("seeds", [1, 2])
def test_the_figures_of_a_report_of_many_variants_are_legible(seeds: int, tmp_path: Path) -> None:
    """No names of code, at most six lines that have names at their ends, the best of each method among them."""
    methods = {"local_sgd": "method.period", "mem_sgd": "compressor.ratio", "diloco": "method.period"}
    settings = [("psgd",), *((m, f"{key}={v}") for m, key in methods.items() for v in (2, 4, 8, 16, 32, 64, 128))]
    runs, cells = [], []
    for place, (method, *own) in enumerate(settings):
        for seed in range(seeds):
            run = Forged(method, seed, lr=f"{place}", accuracy=0.5 + 0.02 * place)
            labels = {"method": method} | dict(each.split("=") for each in own)
            runs.append(run)
            cells.append({"run": run.name, "seed": seed, "labels": labels, "settings": []})
    analysis = analyse(forge(tmp_path, runs, cells=cells, select=None, target={"val_accuracy": 0.6}))
    drawn = draw_all(analysis, [], [])
    assert {"convergence", "pareto", "consensus"} <= drawn.keys(), "but none against workers"
    assert "scaling" not in drawn
    for figure in drawn.values():
        texts = check(canvas(figure))
        assert not [text for text in texts if re.search(r"[a-z]_[a-z]|\w\w=", text)]
    lines = drawn["convergence"].panels[0].draw.keywords["lines"]  # type: ignore[attr-defined]
    named = [line.name for line in lines if line.named]
    assert len(named) <= LINES < len(lines)
    assert {"parallel SGD", "local SGD period 128", "error feedback ratio 128", "DiLoCo period 128"} <= {*named}
    assert {*drawn["convergence"].data["variant"]} == {variant.name for variant in analysis.variants}, "as in tables"


@pytest.mark.parametrize("variants", [3, 8, 22])
def test_labels_of_many_variants_are_not_upon_each_other(variants: int) -> None:
    rng = np.random.default_rng(0)
    names = [
        f"psgd, then DiLoCo H={i} as published" if i % 3 else f"mem_sgd top_k ratio=0.0{i}" for i in range(variants)
    ]
    costs, values = 10 ** rng.uniform(0, 2, variants), rng.uniform(1.7, 2.0, variants)
    spots = [
        Spot(i, name, look(i), cost, Estimate(value, None if i % 2 else 0.01, 3))
        for i, (name, cost, value) in enumerate(zip(names, costs, values, strict=True))
    ]
    part = Panel("all", lambda axes: tradeoff(axes, spots, "val_loss", 30.0), 7.6, 4.0 + 0.12 * max(0, variants - 8))
    check(canvas(Drawn("pareto", "", "", [part], 1)))
    data = pd.DataFrame({"cluster": "here", "variant": names, "modelled_speed_up": 1 + values, "low": 1.0, "high": 9.0})
    kinds = {name: i for i, name in enumerate(names)}

    def rows(axes: Axes) -> None:
        wallclock._speed_ups(axes, data, names, ["here"], "psgd", kinds, {names[0]: "3 of 10 reached"})

    height = 0.75 + wallclock._row(names) * variants
    check(canvas(Drawn("speed_up", "", "", [Panel("all", rows, 7.6, height, (wallclock.NAMES, 0.15, 0.45, 0.1))], 1)))
