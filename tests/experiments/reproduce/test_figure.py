"""The figure of a table: a reader's words, lines named at their ends, printed values, guides and floors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.report.draw.figures import canvas, save
from commeff.experiments.report.draw.lines import Drawing
from commeff.experiments.reproduce.figure import drawing, figure
from commeff.experiments.reproduce.results import CaseResult, Observation, Results
from commeff.experiments.reproduce.table import read_table
from tests.experiments.reproduce.reproduced import Code, write_table

GRID = [{"name": name, "method": "psgd", "optimizer.lr": [0.1, 0.2]} for name in ("ef21", "a_b")]


def results(folder: Path, numbers: str = "[]", **words: object) -> Results:
    figure = {"x": "step", "y": "val_accuracy", "lines": ["optimizer.lr"]} | words
    content = {"paper": "nobody", "grid": GRID, "claims": ["loss(r.a_b(lr=0.1)) < 1"], "figure": figure}
    table = read_table(Path(write_table(folder, content | {"numbers": Code(numbers)})))
    curve = pd.DataFrame({"step": [1, 2], "val_accuracy": [0.25, 0.5]})
    run = {seed: Observation({"val_accuracy": 0.5}, curve) for seed in (0, 1)}
    return Results(table, [CaseResult(case, run, case.labels) for case in table.cases])


def drawn(found: Results) -> Drawing:
    assert found.table.figure is not None
    return drawing(found, found.table.figure)


def texts(found: Results) -> list[str]:
    assert found.table.figure is not None
    made = canvas(figure(found, found.table.figure))
    return [
        text.get_text() for axes in made.axes for text in (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts)
    ]


def test_lines_have_a_readers_words_a_colour_for_a_variant_and_a_style_for_a_label(tmp_path: Path) -> None:
    found = results(tmp_path, lines={"optimizer.lr": "step {}"})
    (panel,) = drawn(found).panels
    lines = [(line.label, line.colour, line.style) for line in panel.lines]
    assert lines == [
        ("EF21, step 0.1", 0, 0),
        ("EF21, step 0.2", 0, 1),
        ("a b, step 0.1", 1, 0),
        ("a b, step 0.2", 1, 1),
    ]
    assert {"validation accuracy (%)", "step", *(label for label, *_ in lines)} <= {*texts(found)}
    assert found.table.figure is not None
    save(figure(found, found.table.figure), tmp_path)
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_lines_of_one_variant_have_its_labels_for_names_and_colours_of_their_own(tmp_path: Path) -> None:
    (panel,) = drawn(results(tmp_path, only=["a_b"])).panels
    assert [(line.label, line.colour, line.style) for line in panel.lines] == [("lr 0.1", 0, 0), ("lr 0.2", 1, 0)]
    assert panel.lines[0].points.tolist() == [[1.0, 25.0, 25.0, 25.0], [2.0, 50.0, 50.0, 50.0]]


def test_only_picks_values_of_labels(tmp_path: Path) -> None:
    (panel,) = drawn(results(tmp_path, only={"optimizer.lr": 0.2}, lines=[])).panels
    assert [line.label for line in panel.lines] == ["EF21", "a b"]


def test_printed_values_stand_beside_ours(tmp_path: Path) -> None:
    number = 'printed("ef21", "val_accuracy", 0.9, "table 1", {"optimizer.lr": 0.2})'
    (panel,) = drawn(results(tmp_path, f"[{number}]")).panels
    assert [line.printed.tolist() for line in panel.lines] == [[], [[2.0, 90.0]], [], []]
    (panel,) = drawn(results(tmp_path, f"[{number}]", published="")).panels
    assert not any(len(line.printed) for line in panel.lines)


def test_words_along_an_axis_are_places(tmp_path: Path) -> None:
    found = results(tmp_path, x="name", y=Code('final("val_accuracy") / 2'))
    made = drawn(found)
    assert made.places == ["EF21", "a b"]
    assert [line.points[:, 0].tolist() for line in made.panels[0].lines] == [[0.0, 1.0], [0.0, 1.0]]


def test_nothing_is_drawn_below_the_floor(tmp_path: Path) -> None:
    (panel,) = drawn(results(tmp_path, floor=0.3)).panels
    assert panel.lines[0].points.tolist() == [[2.0, 50.0, 50.0, 50.0]]


def test_a_guide_is_a_power_of_x_or_a_function_of_the_case(tmp_path: Path) -> None:
    guides = {"slope 2": 2, "bound": Code('lambda c: c["lr"]')}
    found = results(tmp_path, x="optimizer.lr", lines=[], log="xy", guides=guides)
    assert found.table.figure is not None
    assert {"slope 2", "bound"} <= {*texts(found)}
    axes = canvas(figure(found, found.table.figure)).axes[0]
    slope, bound = (np.array(line.get_xydata()) for line in axes.lines[-2:])
    assert np.allclose(np.diff(np.log(slope[:, 1])), 2 * np.diff(np.log(slope[:, 0])))
    assert np.allclose(bound, [[0.1, 10.0], [0.2, 20.0]])


def test_a_point_of_one_seed_says_so(tmp_path: Path) -> None:
    found = results(tmp_path, lines=[], only={"optimizer.lr": 0.1})
    alone = [CaseResult(each.case, {0: each.runs[0]}, each.labels) for each in found.cases]
    assert "EF21 (n = 1)" in texts(Results(found.table, alone))


@pytest.mark.parametrize(
    "words", [{"lines": "lr"}, {"only": "ef21"}, {"only": ["ef2"]}, {"guides": ["1/n"]}, {"log": "z"}]
)
def test_words_that_say_nothing_are_refused(tmp_path: Path, words: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"figure.{next(iter(words))}|figure.lines must"):
        results(tmp_path, **words)
