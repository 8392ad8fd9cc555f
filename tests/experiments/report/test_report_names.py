"""Whatever variants are called, figures and the terminal show their names whole, and cut no number."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.draw import figures as drawing
from commeff.experiments.report.write import html
from commeff.experiments.report.write.table import Column, Item, Table, print_table
from commeff.experiments.report.write.table_main import main_tables
from commeff.experiments.report.write.writing import write_report
from tests.experiments.report.report_stores import Forged, forge

LONG = r"a rather long name of 50 % & <b>$x_i$</b> \alpha #1 {x}~^| and what more there is to say of it"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rates of three methods on a cluster, one of them with a long name."""
    store = tmp_path_factory.mktemp("names")
    settings = {"psgd": (), "dsgd": ("topology=ring",), "local_sgd": ("method.period=4",)}
    runs = [
        Forged(method, seed, lr, accuracy=0.9 + float(lr) / 10 + seed / 100, settings=("task=digits", *own))
        for method, own in settings.items()
        for lr in ("0.1", "0.2")
        for seed in (0, 1)
    ]
    forge(store, runs, target={"val_accuracy": 0.8}, clusters=[{"cluster": "v100_25g"}])
    path = store / "grids" / "forged.json"
    plan = json.loads(path.read_text())
    for cell in plan["cells"]:
        if cell["labels"]["method"] == "dsgd":
            cell["labels"]["topology"] = LONG
    path.write_text(json.dumps(plan))
    return store


def overhang(canvas: Canvas) -> list[str]:
    """The words of a canvas that hang out of it; numbers may: ticks beyond an axis are not drawn."""
    canvas.draw_without_rendering()
    frame = canvas.bbox
    texts = [text for text in canvas.findobj(Text) if re.search("[a-z]{3}", text.get_text())]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    return [text for text, box in boxes if min(box.x0, box.y0) < -2 or box.x1 > frame.x1 + 2 or box.y1 > frame.y1 + 2]


def test_no_figure_cuts_a_name(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: dict[str, list[str]] = {}
    wide: dict[str, bool] = {}

    def look(canvas: Canvas, path: Path) -> None:
        cut[path.stem] = overhang(canvas)
        wide[path.stem] = any(LONG.split()[-1] in text.get_text() for text in canvas.findobj(Text))

    monkeypatch.setattr(drawing, "print_to", look)
    monkeypatch.setattr(html, "svg", lambda figure, panel: "")
    write_report(store, tmp_path / "out")
    assert {"convergence", "pareto", "speed_up", "step_time", "modelled_convergence"} <= {*cut}
    assert not {name: texts for name, texts in cut.items() if texts}
    assert all(shown for name, shown in wide.items() if name != "topologies")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_terminal_cuts_a_number(width: int, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = main_tables(analyse(store))[0]
    print_table(table, width)
    out = capsys.readouterr().out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= width
    assert all(row[2].plain in out for row in table.rows), "accuracies stand there whole"
    words = LONG.split()
    assert all(word in out for word in words), "and the name, in lines"
    assert ("saving" in out) == (width == 200)


def test_marks_are_explained_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("variant", "", [Item("a")], words=True), Column("loss", "", [Item("1.0", mark="†")])]
    notes = ("Means.", "† Cannot be told apart.", "‡ Counted.")
    print_table(Table("t", "", columns, notes), 80)
    out = capsys.readouterr().out
    assert "† Cannot be told apart." in out
    assert "‡" not in out
