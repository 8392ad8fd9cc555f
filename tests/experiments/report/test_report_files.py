"""The files of a report: one page that needs nothing else, tables that compile, figures with their data."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner, Result

from commeff.experiments.cli.report import report_command, show
from commeff.experiments.escape import latex_text
from commeff.experiments.report.write.writing import Report, write_report
from tests import owned
from tests.experiments.report.report_stores import Forged, forge, half_finished

EMPTY = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """What is in a page: ids, texts, what it would load, and whether all that opens closes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [str(given["id"])] if "id" in given else []
        self.loads += [str(given[key]) for key in ("src", "xlink:href", "srcset", "data", "poster") if key in given]
        if tag == "a":
            self.links.append(str(given.get("href")))
        elif "href" in given:
            self.loads.append(str(given["href"]))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Report:
    store = forge(tmp_path_factory.mktemp("half"), half_finished(), title="Half & <i>half</i> $5 top_k")
    return write_report(store)


@pytest.fixture(scope="module")
def page(half: Report) -> Page:
    return Page(half.html.read_text(encoding="utf-8"))


def test_the_page_closes_what_it_opens_and_no_id_stands_twice(page: Page) -> None:
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


def test_the_page_loads_nothing(half: Report, page: Page) -> None:
    assert [target for target in page.loads if not target.startswith("#")] == []
    text = half.html.read_text(encoding="utf-8")
    assert not re.search(r"https?://|@import|url\((?!#)|<link|fetch\(|XMLHttpRequest", text)


def test_every_run_is_on_the_page_with_its_command(half: Report, page: Page) -> None:
    for run in half.analysis.runs:
        assert run.cell.run in page.text
        assert f"commeff train {' '.join(run.cell.settings or ())} --store {half.analysis.store}" in page.text


def test_links_lead_somewhere(half: Report, page: Page) -> None:
    assert len(page.links) > 20
    for link in page.links:
        assert link[1:] in page.ids if link.startswith("#") else (half.folder / link).exists(), link


def test_what_users_wrote_is_text_and_not_markup(half: Report, page: Page) -> None:
    assert "Half & <i>half</i> $5 top_k" in page.text
    assert "no such <graph>" in page.text


def test_every_figure_is_a_pdf_a_png_and_its_data(half: Report) -> None:
    folder = half.folder / "figures"
    drawn = {path.stem for path in folder.glob("*.pdf")}
    assert drawn == {"convergence", "pareto", "consensus", "sweep_optimizer_lr", "topologies"}
    for name in drawn:
        assert (folder / f"{name}.png").stat().st_size > 1000
        assert len(pd.read_csv(folder / f"{name}.csv")) > 0
    tables = {path.stem for path in folder.glob("*.csv")} - drawn
    assert tables == {"main", "target", "sweep", "failures"}


def test_the_same_store_gives_the_same_files(half: Report) -> None:
    again = write_report(half.analysis.store, half.analysis.store / "report_too")
    for path in sorted(path for path in half.folder.rglob("*") if path.is_file()):
        assert (again.folder / path.relative_to(half.folder)).read_bytes() == path.read_bytes(), path.name


def test_the_markdown_has_the_same_main_table(half: Report) -> None:
    text = (half.folder / "report.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    for row in half.main.rows:
        assert any(all(item.text.replace("_", "\\_") in line for item in row) for line in lines)
    for image in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (half.folder / image).is_file()


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    written = write_report(forge(tmp_path, [Forged("psgd", state="queued")]), tmp_path / "out")
    text = Page(written.html.read_text(encoding="utf-8")).text
    assert "No run is done yet" in text
    assert "No run has measured anything yet" in text


def test_latex_escapes_what_it_must() -> None:
    assert latex_text(r"a_b & 5 % #1 $x {y} ~ ^ \z") == (
        r"a\_b \& 5 \% \#1 \$x \{y\} \textasciitilde{} \textasciicircum{} \textbackslash{}z"
    )


PAPER = r"""\documentclass{article}
\usepackage{booktabs}
\begin{document}
\input{FOLDER/tables.tex}
"""


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_a_paper_inputs_the_tables_all_and_each(half: Report, tmp_path: Path) -> None:
    """With the packages that their comments name, and no other."""
    each = [rf"\input{{{path}}}" for path in sorted((half.folder / "tables").iterdir())]
    text = PAPER.replace("FOLDER", str(half.folder)) + "\n\n".join([*each, r"\end{document}"])
    (tmp_path / "paper.tex").write_text(text)
    ran = owned.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"], cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 1000
    floats = ran.stdout.split("/tables/")[0]
    wide = [float(points) for points in re.findall(r"Overfull .hbox .([0-9.]+)pt too wide", floats)]
    assert max(wide, default=0.0) < 5, "what floats fits on the page, but for a letter"


def test_the_tables_are_what_a_paper_inputs(half: Report) -> None:
    """One file a table: booktabs, as many cells a line as columns, no float and no preamble; all of them float."""
    files = {path.stem: path.read_text() for path in (half.folder / "tables").iterdir()}
    assert {*files} == {*half.tables}
    everything = (half.folder / "tables.tex").read_text()
    for name, text in files.items():
        assert text.startswith("% In the preamble: \\usepackage{booktabs}\n")
        lines = [line for line in text.splitlines() if not line.startswith("%")]
        shape = re.fullmatch(r"\\begin\{tabular\}\{((?:[lr]|p\{5cm\})+)\}", lines[0])
        assert shape
        assert (lines[1], *lines[-2:]) == ("\\toprule", "\\bottomrule", "\\end{tabular}")
        cells = [line for line in lines[2:-2] if line != "\\midrule"]
        width = len(re.findall(r"[lr]|p\{5cm\}", shape[1]))
        assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in cells} == {width}
        assert len(cells) >= len(half.tables[name].rows) + 1
        assert "\n".join(lines) in everything
    for opened in ("table", "tabular"):
        assert everything.count(f"\\begin{{{opened}}}") == everything.count(f"\\end{{{opened}}}") == len(files)
    assert "documentclass" not in everything
    for name, sign in (("ddagger", "so much"), ("dagger", "tell the two apart")):
        captions = [caption for caption in re.findall(r"\\caption\{(.*)\}", everything) if sign in caption]
        assert bool(captions) == (f"$^\\{name}$ \\\\" in everything or f"$^\\{name}$ &" in everything)
    assert len({*re.findall(r"\\label\{(.*?)\}", everything)}) == len(files)


def run(*words: str) -> Result:
    app = typer.Typer()
    app.command()(report_command)
    return CliRunner().invoke(app, list(words))


def test_the_command_prints_the_main_table_and_where_the_page_is(tmp_path: Path) -> None:
    store = forge(tmp_path / "store", [Forged("psgd", seed, accuracy=0.9) for seed in (0, 1)])
    done = run(str(store), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0
    assert f"report: {tmp_path / 'out' / 'report.html'}" in done.stdout
    assert "psgd with 16-bit numbers" in done.stdout


def test_json_is_all_that_is_printed_where_it_is_asked_for(half: Report, capsys: pytest.CaptureFixture[str]) -> None:
    show(half, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [row["variant"] for row in rows] == ["psgd", "dsgd", "choco"]
    assert rows[0]["val_accuracy"] == pytest.approx(0.93)
    assert rows[1]["val_accuracy_minus_baseline"] == pytest.approx(-0.02)


def test_the_command_refuses_in_one_line(half: Report, tmp_path: Path) -> None:
    for words, reason in (
        ((str(tmp_path / "nowhere"),), "there is no store"),
        ((str(half.analysis.store), "--metric", "bleu"), "--metric must be one of .*bleu"),
        ((str(half.analysis.store), "--baseline", "psgd"), "--baseline must be key=value"),
    ):
        refused = run(*words)
        assert refused.exit_code == 2
        assert re.fullmatch(rf"commeff: .*{reason}.*\n", refused.stderr)
