"""How its author wants a report: names, order, the 16-bit row; and names that must not be misread."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.spec import read_grid
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.summary import findings
from commeff.experiments.report.draw.plots import consensus
from commeff.experiments.report.style import read_style
from commeff.experiments.report.write import latex
from commeff.experiments.report.write.table import Column, Item, Table
from commeff.experiments.report.write.table_details import environment_table
from commeff.experiments.report.write.writing import write_report
from tests.experiments.report.report_stores import Forged, forge

RUNS = [Forged(method, seed) for method in ("psgd", "dsgd", "choco") for seed in (0, 1)]
OWN = {"labels": {"dsgd": "gossip, plain"}, "order": ["choco", "dsgd"]}


def rows(text: str) -> list[str]:
    """The first words of the rows of a LaTeX table."""
    return [line.partition(" & ")[0] for line in text.partition("\\midrule")[2].splitlines() if " & " in line]


def test_labels_and_order_of_a_grid_reach_all_tables_and_figures(tmp_path: Path) -> None:
    forge(tmp_path, RUNS, **OWN)
    written = write_report(tmp_path)
    names = ["choco", "gossip, plain", "psgd"]
    assert [row.variant.name for row in written.analysis.rows] == names
    assert rows((written.folder / "tables/main.tex").read_text())[:3] == names
    page = (written.folder / "report.md").read_text()
    assert "“gossip, plain”" in page  # in sentences, where a comma would end the name
    assert not re.search(r"\bdsgd\b", page)
    assert "gossip, plain" in (written.folder / "figures/main.csv").read_text()


def test_a_label_of_no_variant_is_said(tmp_path: Path) -> None:
    written = write_report(forge(tmp_path, RUNS, labels={"dsdg": "gossip"}))
    line = "labels names 'dsdg', which is no variant; did you mean dsgd?"
    assert line in (written.folder / "report.md").read_text()


def test_the_16_bit_row_can_be_left_out(tmp_path: Path) -> None:
    store = forge(tmp_path, RUNS)
    for option, counted in ((), True), (("--no-half-dense",), False):
        told = CliRunner().invoke(app, ["report", str(store), *option])
        assert told.exit_code == 0, told.output
        assert ("16-bit" in told.stdout) is counted
        assert ("16-bit" in (store / "report" / "report.md").read_text()) is counted
    forge(tmp_path / "other", RUNS, half_dense=False)
    assert not analyse(tmp_path / "other").half_dense
    assert analyse(tmp_path / "other", half=True).half_dense


def test_labels_and_order_of_a_style_reach_latex(tmp_path: Path) -> None:
    store = forge(tmp_path / "store", RUNS)
    (tmp_path / "paper.yaml").write_text(yaml.safe_dump(OWN))
    written = write_report(store, style=read_style(tmp_path / "paper.yaml"))
    assert rows((written.folder / "tables/main.tex").read_text())[:3] == ["choco", "gossip, plain", "psgd"]
    assert "gossip, plain" in (written.folder / "tables.tex").read_text()
    assert "gossip, plain" not in (written.folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("labels: [psgd]", "labels must be variants with a word for each"),
        ("labels: {a: x, b: x}", "labels must differ"),
        ("order: psgd", "order must be a list of variants"),
        ("half_dense: some", "half_dense must be true or false"),
    ],
)
def test_what_no_report_can_show_is_refused(line: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"grid: [{{method: psgd}}]\n{line}\n")
    with pytest.raises(ConfigError, match=says):
        read_grid(tmp_path / "mine.yaml")


def test_a_grid_keeps_what_its_file_says_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"{yaml.safe_dump(OWN)}half_dense: false\ngrid: [{{method: psgd}}]\n")
    assert read_grid(tmp_path / "mine.yaml").shown == {**OWN, "half_dense": False}


@pytest.mark.parametrize("name", ["a" * 200, "optimizer.lr=0.1 " * 20, "x_" * 90])
def test_latex_has_names_of_any_length(name: str) -> None:
    """A long name stands in several lines; no piece of it that cannot be broken is longer than a line."""
    text = latex.tabular(
        Table("t", "", [Column("variant", items=[Item(name)], words=True), Column("n", items=[Item("1")])])
    )
    assert r"\begin{tabular}{p{5cm}r}" in text
    (cell,) = rows(text)
    pieces = re.split(r"\\hspace\{0pt\}| ", cell.removeprefix(r"\rightskip 0pt plus 1fil "))
    assert max(len(piece.replace("\\_", "_")) for piece in pieces) <= 20
    assert "".join(pieces).replace("\\_", "_") == name.replace(" ", "")
    short = latex.tabular(Table("t", "", [Column("variant", items=[Item("psgd")], words=True)]))
    assert r"\begin{tabular}{l}" in short


def test_plug_ins_are_no_place(tmp_path: Path) -> None:
    facts = {"mine.py": {"digest": "d" * 64}}
    runs = [Forged("psgd"), Forged("dsgd", environment={"plugins": facts})]  # type: ignore[dict-item]
    assert environment_table(analyse(forge(tmp_path, runs))) is None


def test_workers_that_agree_when_evaluated_are_not_said_to_agree_always(tmp_path: Path) -> None:
    """Evaluations that fall on the steps at which local SGD averages see no distance, and there is one."""
    runs = [Forged("psgd", settings=("task=digits",)), Forged("local_sgd", settings=("method.period=10",))]
    runs += [Forged("dsgd", settings=("topology=ring",))]
    forge(tmp_path, runs)
    file = tmp_path / runs[1].name / "metrics.jsonl"
    lines = [json.loads(line) | {"consensus_distance": 0.0} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    figure = consensus(analyse(tmp_path))
    assert figure is not None
    assert "In agreement whenever it was evaluated, so not drawn: psgd, local_sgd" in figure.caption


def test_names_with_commas_are_quoted_in_sentences(tmp_path: Path) -> None:
    forge(tmp_path, [Forged(m, s, accuracy=0.9 + s / 100) for m in ("psgd", "dsgd") for s in (0, 1, 2)])
    path = tmp_path / "grids" / "forged.json"
    plan = json.loads(path.read_text())
    for cell in plan["cells"]:
        cell["name"] = "all, dense" if cell["labels"]["method"] == "psgd" else None
    path.write_text(json.dumps(plan))
    assert "“all, dense” and dsgd are not separated" in findings(analyse(tmp_path))[0]
