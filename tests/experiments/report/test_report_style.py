"""Figures in a style of the user's: sizes, fonts, order, labels, colours; what a style cannot have is refused."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

from commeff.experiments.report.data.analysis import Analysis, analyse
from commeff.experiments.report.draw import figures as drawing
from commeff.experiments.report.draw.figures import Look
from commeff.experiments.report.draw.plots import figures
from commeff.experiments.report.draw.style import styled
from commeff.experiments.report.style import read_style
from commeff.experiments.report.write import writing
from commeff.experiments.report.write.writing import write_report
from tests.experiments.report.report_stores import Forged, forge

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    runs = [Forged(method, seed, accuracy=0.9) for method in ("psgd", "dsgd", "choco") for seed in (0, 1)]
    return analyse(forge(tmp_path_factory.mktemp("style"), runs))


def in_style(analysis: Analysis, text: str, folder: Path) -> dict[str, tuple[drawing.Figure, dict[str, Any]]]:
    (folder / "s.yaml").write_text(text)
    build = partial(writing._figures, clocks=[], topologies=[])
    plain = {figure.name: figure for figure in build(analysis)}
    found = styled(read_style(folder / "s.yaml"), plain, analysis, build)
    return {figure.name: (figure, settings) for figure, settings in found}


def drawn(figure: drawing.Figure) -> dict[str, Look]:
    """The lines of the first panel, by name."""
    return {line.name: line.look for line in figure.panels[0].draw.keywords["lines"]}  # type: ignore[attr-defined]


def test_each_figure_has_its_own_order_labels_and_colours(analysis: Analysis, tmp_path: Path) -> None:
    text = """
order: [choco]
labels: {psgd: All-reduce}
figures:
  consensus: {labels: {dsgd: Gossip}, colours: {dsgd: red}}
"""
    found = in_style(analysis, text, tmp_path)
    now = {name: drawn(figure) for name, (figure, _) in found.items() if name in ("convergence", "consensus")}
    names = {name: [*lines] for name, lines in now.items()}
    assert names["convergence"] == ["CHOCO-SGD", "All-reduce", "DSGD"], "names of code in words, but for its labels"
    assert names["consensus"] == ["CHOCO-SGD", "Gossip"], "its own labels, in the order of all"
    before = {figure.name: drawn(figure) for figure in figures(analysis) if figure.name in now}
    assert now["consensus"]["Gossip"].colour == "red" != before["consensus"]["dsgd"].colour
    assert now["convergence"]["DSGD"] == before["convergence"]["dsgd"]
    assert now["convergence"]["All-reduce"] == before["convergence"]["psgd"], "a look is the variant's, not the name's"
    assert {*found["consensus"][0].data["variant"]} == {"dsgd", "choco"}, "data keep the names of the tables"


def test_each_figure_has_its_own_size_panels_and_font(analysis: Analysis, tmp_path: Path) -> None:
    text = """
width: 3.25
font: serif
figures:
  convergence: {panels: [step-val_accuracy, wire_bytes-train_loss], columns: 2, width: 6.5, height: 2, font_size: 6}
"""
    found = in_style(analysis, text, tmp_path)
    figure, settings = found["convergence"]
    assert [panel.name for panel in figure.panels] == ["step-val_accuracy", "wire_bytes-train_loss"]
    assert {(panel.width, panel.height) for panel in figure.panels} == {(3.25, 2)}
    assert settings["font.size"] == 6
    assert found["pareto"][0].panels[0].width == 3.25
    assert found["pareto"][1] == {"font.family": "serif"}
    with mpl.rc_context(drawing.STYLE | settings):
        assert drawing.letters(8.5) == 6
    drawing.write(figure, tmp_path, settings)
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", (tmp_path / "convergence.pdf").read_bytes())
    assert float(box[0]) == 6.5 * 72
    assert float(box[1]) == 2 * 72, "a row: lines have their names at their ends"
    assert b"DejaVuSerif" in (tmp_path / "convergence.pdf").read_bytes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("widht: 3", "widht must be one of width, .*did you mean width"),
        ("figures: {pareto: {fontsize: 3}}", r"pareto\.fontsize must be one of .*did you mean font_size"),
        ("width: wide", "width must be a number above 0, at most 60, got 'wide'"),
        ("columns: 1.5", "columns must be a whole number above 0"),
        ("font: DejaVu Serf", "font must be serif, .* got 'DejaVu Serf'|did you mean DejaVu Serif"),
        ("order: psgd", "order must be a list of names"),
        ("labels: [psgd]", "labels must be variants with a word for each"),
        ("labels: {psgd: a, dsgd: a}", "labels must differ"),
        ("colours: {psgd: nocolour}", r"colours\.psgd must be a colour"),
        ("figures: {parteo: {}}", "figures must be among .*did you mean pareto"),
        ("labels: {pgsd: a}", "labels must be among .*got 'pgsd'; did you mean psgd"),
        ("figures: {convergence: {panels: [step]}}", "panels of convergence must be among step-val_accuracy"),
        ("width: 1", "width, height, columns and font_size of convergence must leave room"),
        ("font_size: 200", "width, height, columns and font_size of convergence must leave room"),
        ("figures: {pareto: {height: 0.5}}", "width, height, columns and font_size of pareto must leave room"),
        ("figures: 3", "figures must be names of figures"),
        ("- 1", "must be a file of keys and values"),
    ],
)
def test_a_style_with_what_is_not_there_is_refused_in_a_line(
    analysis: Analysis, text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(ValueError, match=words) as refused:
        in_style(analysis, text, tmp_path)
    assert "\n" not in str(refused.value)
    assert "s.yaml" in str(refused.value)


@pytest.mark.parametrize(("name", "inches"), [("paper", 3.25), ("lecture", 8)])
def test_styles_that_ship_fit_every_figure(name: str, inches: float, analysis: Analysis, tmp_path: Path) -> None:
    written = write_report(analysis.store, tmp_path / "out", style=read_style(Path(name)))
    pdf = (written.folder / "figures" / "convergence.pdf").read_bytes()
    (width,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", pdf)
    assert float(width) == inches * 72
    assert {*pd.read_csv(written.folder / "figures" / "convergence.csv")["variant"]} == {"psgd", "dsgd", "choco"}


def test_a_style_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--style must be lecture, paper or a file, got .*: No such file"):
        read_style(tmp_path / "nowhere.yaml")
