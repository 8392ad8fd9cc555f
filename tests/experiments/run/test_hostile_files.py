"""Files that others wrote: odd ones are a line each and the rest is read; names are text wherever they are printed."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib
import inspect
import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import yaml

from commeff import topologies
from commeff.experiments.cli import main
from commeff.experiments.config.build import instantiate, topology
from commeff.experiments.config.compose import compose
from commeff.experiments.config.registry import OURS, locate
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.draw.networks import networks
from commeff.experiments.report.write import writing
from commeff.experiments.report.write.latex import tabular
from commeff.experiments.report.write.table import Table
from commeff.experiments.report.write.writing import Report, write_report
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.origins import GRAPH_FILES, inside
from commeff.experiments.run.runner import run_one
from tests.experiments.report.report_stores import Forged, forge

HUGE = 10**400
WRITTEN: list[tuple[str, str]] = [  # a file of a run, and what stands in it
    ("status.json", ""),
    ("status.json", '{"state": "do'),
    ("status.json", "[1, 2]"),
    ("status.json", "[" * 100_000),
    ("status.json", '{"a":' * 5_000 + "1" + "}" * 5_000),
    ("status.json", f'{{"state": "running", "pid": {HUGE}, "host": "x", "time": {HUGE}, "step": {HUGE}}}'),
    ("status.json", '{"state": ["done"], "pid": "1; ls", "time": "x", "step": {}, "preemptions": "many"}'),
    ("status.json", '{"state": "<script>", "time": true}'),
    ("summary.json", "[]"),
    ("summary.json", '{"val_accuracy": '),
    ("env.json", '"here"'),
    ("env.json", "\x00\x01"),
    ("config.yaml", "a: [1,\n"),
    ("config.yaml", "[" * 3_000),
    ("config.yaml", "a: &a\n  b: *a\n"),
    ("config.yaml", "".join(f"x{i}: &x{i} [{f'*x{i - 1}, ' * 9 if i else 'x'}]\n" for i in range(9))),
    ("config.yaml", "!!python/object/apply:os.system ['touch executed']\n"),
    ("config.yaml", "seed: many\nmethod: []\n"),
    ("metrics.jsonl", f'{{"step": 1, "val_loss": {HUGE}}}\n[]\n{{"step": {{}}}}\n'),
]
PLACED: list[tuple[str, Callable[[Path], object]]] = [  # a file of a run, and what is in its place
    ("status.json", Path.mkdir),
    ("summary.json", lambda path: path.symlink_to(path)),
    ("metrics.jsonl", lambda path: path.symlink_to("/dev/zero")),
    ("env.json", os.mkfifo),
]


def test_an_odd_file_is_a_line_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [Forged("psgd", seed) for seed in range(len(WRITTEN) + len(PLACED) + 2)]
    store = forge(tmp_path / "store", runs)
    odd = []
    for run, (name, text) in zip(runs, WRITTEN, strict=False):
        (store / run.name / name).write_text(text)
        odd.append(f"{run.name}/{name}")
    for run, (name, place) in zip(runs[len(WRITTEN) :], PLACED, strict=False):
        (store / run.name / name).unlink()
        place(store / run.name / name)
        odd.append(f"{run.name}/{name}")
    faults = analyse(store).faults
    assert [file for file in odd if not any(fault.startswith(file) for fault in faults)] == []
    assert [fault for fault in faults if not fault.startswith(tuple(odd)) or "\n" in fault] == []
    for words in (["status", str(store), "--all"], ["status", str(store), "--json"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        out, err = capsys.readouterr()
        assert (end.value.code, err) == (0, "")
        assert all(run.name in out for run in runs)
    with pytest.raises(SystemExit) as end:
        main(["report", str(store)])
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (0, "")
    assert all(file in (store / "report" / "report.html").read_text() for file in odd)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_long_text_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = forge(tmp_path, [Forged("psgd", state="failed")])
    status = {"state": "failed", "error": "A" * 10_000_000}
    (store / "psgd-digits-0.1-0" / "status.json").write_text(json.dumps(status))
    with pytest.raises(SystemExit):
        main(["status", str(store)])
    assert len(capsys.readouterr().out) < 100_000


SECRET = "PASSWORD hunter2\n"
GRAPH, TASKS = {"_target_": "commeff.topologies.from_graph"}, "commeff.experiments.tasks"
NAMING: list[dict[str, Any]] = [  # a part of a stored run that names a file
    {"topology": {**GRAPH, "graph": "FILE"}},
    {"topology": {**GRAPH, "graph": "FILE.graphml"}},
    {"topology": {"_target_": "commeff.topologies.from_matrices", "matrices": "FILE"}},
    {"topology": {"_target_": "commeff.topologies.lazy", "topology": {**GRAPH, "graph": "FILE"}}},
    {"topology": {**GRAPH, "graph": "/dev/zero"}},
    {"topology": {**GRAPH, "graph": "PIPE"}},
    {"task": {"_target_": f"{TASKS}.Language", "data": "FILE", "workers": 4}},
    {"task": {"_target_": f"{TASKS}.Language", "data": "tinyshakespeare", "data_dir": "FOLDER", "workers": 4}},
    {"task": {"_target_": f"{TASKS}.ImageFolder", "path": "FOLDER", "workers": 4}},
]
opened: list[str] | None = None


def _note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and opened is not None and isinstance(arguments[0], str):
        opened.append(arguments[0])


@pytest.fixture(scope="module")
def audited() -> None:
    sys.addaudithook(_note_opened)


def test_reading_a_store_opens_no_file_outside_it(
    audited: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path / "outside"
    places = {"FILE": outside / "secret", "FOLDER": outside / "folder", "PIPE": outside / "pipe"}
    (outside / "folder" / "tinyshakespeare").mkdir(parents=True)
    for name in ("secret", "secret.graphml", "mine.yaml", "folder/tinyshakespeare/input.txt"):
        (outside / name).write_text(SECRET)
    os.mkfifo(outside / "pipe")
    whole = [Forged("dsgd", i, settings=("topology=ring",)) for i in range(len(NAMING))]
    runs = [*whole, Forged("psgd", state="failed")]
    clusters = [{"cluster": "ethernet_1g"}, {"cluster": f"{outside / 'mine.yaml'}"}]
    store = forge(tmp_path / "store", runs, clusters=clusters)
    path = store / "grids" / "forged.json"
    cells = json.loads(path.read_text())
    for number, (cell, run) in enumerate(zip(cells["cells"], runs, strict=True)):
        cell["labels"]["number"] = str(number)  # a variant of its own
        file = store / run.name / "config.yaml"
        text = json.dumps(yaml.safe_load(file.read_text()) | ([*NAMING, {}][number]))
        for word, place in places.items():
            text = text.replace(f'"{word}', f'"{place}')
        file.write_text(text)
    path.write_text(json.dumps(cells))
    (store / runs[-1].name / "error.txt").unlink()
    (store / runs[-1].name / "error.txt").symlink_to(outside / "secret")
    monkeypatch.setattr(sys.modules[__name__], "opened", [])
    with pytest.raises(SystemExit) as end:
        main(["report", str(store)])
    assert opened
    assert [file for file in opened if str(outside) in file or file == "/dev/zero"] == []
    monkeypatch.setattr(sys.modules[__name__], "opened", None)
    out, err = capsys.readouterr()
    assert (end.value.code, err) == (0, "")
    page = (store / "report" / "report.md").read_text() + (store / "report" / "report.html").read_text() + out
    assert "hunter2" not in page
    assert page.count("is a file outside the store: it is not opened, and the run kept no copy") >= 6
    assert "mine.yaml is a file outside the store: it is not opened; name it with" in page


def test_a_part_has_one_name() -> None:
    """By another, `inside` would not see that it reads a file."""
    with pytest.raises(ValueError, match="is unknown here"):
        locate("commeff.topologies:from_graph")


def test_all_parts_that_read_a_file_are_known(audited: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting of each part as a file: none is opened after `inside`, and without it those that it knows."""
    (tmp_path / "file").write_text(SECRET)
    (tmp_path / "train" / "class").mkdir(parents=True)
    reading = set()
    for target in (f"{place}.{name}" for place in OURS for name in importlib.import_module(place).__all__):
        try:
            names = inspect.signature(locate(target)).parameters
        except (TypeError, ValueError):  # no part, or one without a signature
            continue
        for name in (name for name, each in names.items() if "str" in str(each.annotation)):
            for value in (tmp_path / "file", tmp_path):
                node = {"_target_": target, **({"workers": 2} if "workers" in names else {}), name: f"{value}"}
                node |= {"path": "nowhere"} if "path" in names and name != "path" else {}
                for through in (inside, lambda node, folder: node):
                    monkeypatch.setattr(sys.modules[__name__], "opened", [])
                    with suppress(Exception), warnings.catch_warnings(action="ignore"):
                        instantiate(through(node, tmp_path / "run"), {})
                    found = [file for file in opened or () if file.startswith(f"{tmp_path}/") and "/run/" not in file]
                    monkeypatch.setattr(sys.modules[__name__], "opened", None)
                    assert not (found and through is inside), (target, name)
                    reading |= {(target, name)} if found else set()
    assert {target for target, _ in reading} >= {*GRAPH_FILES}


def test_a_run_keeps_the_graphs_that_it_has_from_files(tmp_path: Path) -> None:
    (tmp_path / "path.edges").write_text("0 1\n1 2\n2 3\n")
    graph = topologies.from_graph(nx.path_graph(4), "fastest")
    words = [f"{key}=2" for key in ("steps", "task.dimension")] + ["method=dsgd", "task=quadratic", "topology=lazy"]
    config = compose([*words, "workers=4"])
    config["topology"]["topology"] = {**GRAPH, "graph": str(tmp_path / "path.edges"), "weights": "fastest"}
    run_one(config, tmp_path / "store" / run_id(config))
    (tmp_path / "path.edges").unlink()
    ((drawn,), faults) = networks(analyse(tmp_path / "store"))
    assert not faults
    assert f"lazy (from_graph graph={tmp_path / 'path.edges'}" in drawn.name
    np.testing.assert_array_equal(drawn.topology.at(0).dense(), topologies.lazy(graph).at(0).dense())
    (tmp_path / "store" / run_id(config) / "graphs.json").unlink()  # as runs were before they kept any
    drawings, faults = networks(analyse(tmp_path / "store"))
    assert (drawings, len(faults)) == ([], 1)
    assert "cannot be built: graph=" in faults[0]


@pytest.mark.parametrize("kept", [1, None, "x", [[0.5]], [[[0.5, "x"], [0, 1]]], [[[1.0, 2.0]]], [], [[[0.5]]]])
def test_what_is_no_graph_is_not_built(kept: Any, tmp_path: Path) -> None:
    node = {**GRAPH, "graph": "there"}
    (tmp_path / "graphs.json").write_text(json.dumps({json.dumps(node, sort_keys=True): kept}))
    with pytest.raises(ValueError, match=r"the run kept no copy|must sum to 1"):
        topology({"topology": inside(node, tmp_path)})


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main(words)
    out, err = capsys.readouterr()
    assert (end.value.code, out, len(err.splitlines())) == (2, "", 1)
    return err


RUN = ["task=quadratic", "task.dimension=2", "workers=2", "steps=1", "method=psgd"]
WRITING: dict[str, list[str]] = {  # a folder in a store, and a command that writes into it
    "report": ["report", "STORE"],
    "report/figures": ["report", "STORE"],
    "report/tables": ["report", "STORE"],
    "grids": ["grid", "GRID", "--store", "STORE", "--no-report"],
    "slurm": ["grid", "GRID", "--store", "STORE", "--launcher", "sbatch", "--no-report"],
    "tables": ["reproduce", "bias_floors", "--scale", "smoke", "--store", "STORE"],
    "pages": ["reproduce", "bert_time", "--store", "STORE"],
    "pages/full": ["reproduce", "bert_time", "--store", "STORE"],
    "measured": ["reproduce", "bert_time", "--store", "STORE"],
    "NAME/logs": ["train", *RUN, "--store", "STORE"],
    "NAME/checkpoints": ["train", *RUN, "--store", "STORE"],
}


@pytest.mark.parametrize("place", WRITING)
def test_nothing_is_written_into_a_folder_that_is_a_link(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    grid = tmp_path / "grid.yaml"
    grid.write_text(json.dumps({"base": dict(word.split("=") for word in RUN[:-1]), "grid": [{"method": "psgd"}]}))
    forge(tmp_path / "real", [Forged("psgd")])
    (tmp_path / "store").symlink_to(tmp_path / "real")
    folder = tmp_path / "store" / place.replace("NAME", run_id(compose(RUN)))
    folder.parent.mkdir(exist_ok=True)
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.symlink_to(tmp_path / "elsewhere")
    words = {"STORE": str(tmp_path / "store"), "GRID": str(grid)}
    assert "is a link, through which nothing is written" in refusal([words.get(w, w) for w in WRITING[place]], capsys)
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_stores_and_runs_that_are_links_are_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forge(tmp_path / "real", [Forged("psgd"), Forged("dsgd")])
    run = tmp_path / "real" / Forged("dsgd").name
    run.rename(tmp_path / "run")
    run.symlink_to(tmp_path / "run")
    (tmp_path / "store").symlink_to(tmp_path / "real")
    (tmp_path / "out").mkdir()
    (tmp_path / "there").symlink_to(tmp_path / "out")
    for words in (["report"], ["report", "--out", str(tmp_path / "there")]):
        with pytest.raises(SystemExit) as end:
            main([*words, str(tmp_path / "store")])
        assert (end.value.code, capsys.readouterr().err) == (0, "")
    assert (tmp_path / "out" / "report.md").read_text() == (tmp_path / "real" / "report" / "report.md").read_text()
    assert "dsgd" in (tmp_path / "out" / "report.md").read_text()
    (tmp_path / "linked").symlink_to(tmp_path / "out")
    assert run_one(compose(RUN), tmp_path / "linked")["state"] == "done"


@pytest.fixture(scope="module", autouse=True)
def undrawn() -> Iterator[None]:
    """Reports without PDF and PNG files, which take long and say nothing here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "write", lambda figure, folder, settings: None)
        yield


EVIL = (
    "\x1b[31mred\x07\u202e </title><script>alert(1)</script><img src=x onerror=alert(1)> "
    '" onload="x ![a](http://evil.example/a.png) [b](javascript:alert(1)) `c` | d $e$ '
    "\\input{/etc/passwd} \\\\ [1cm] %x"
)


class Tags(HTMLParser):
    """The tags of a page, their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report in which every name and text that somebody may choose is hostile."""
    runs = [
        Forged(method, seed, state=state) for method, state in (("psgd", "done"), ("dsgd", "failed")) for seed in (0, 1)
    ]
    store = forge(tmp_path_factory.mktemp("named"), runs, title=EVIL, command=f"commeff grid ```{EVIL}")
    for run in runs:
        (store / run.name / "env.json").write_text(
            json.dumps({"cpu": EVIL, "host": f"{EVIL}{run.seed}", EVIL: run.seed})
        )
        if run.state == "failed":
            (store / run.name / "error.txt").write_text(f"Traceback:\n  x\nValueError: {EVIL}\n")
    path = store / "grids" / "forged.json"
    grid = json.loads(path.read_text())
    for cell in grid["cells"]:
        cell["labels"]["method"] += f" {EVIL}"
        cell["labels"][f"@{EVIL}"] = f"=1+1 {EVIL}"
    path.write_text(json.dumps(grid))
    return write_report(store)


def test_what_is_hostile_is_text_on_the_page(named: Report) -> None:
    page = named.html.read_text(encoding="utf-8")
    found = Tags(page)
    assert "<script>alert(1)</script>" in found.text
    assert "javascript:" not in [str(value)[:11] for _, given in found.tags for value in given.values()]
    assert [tag for tag, given in found.tags if tag == "img" or any(name.startswith("on") for name in given)] == []
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page)


def test_a_browser_runs_the_one_script_of_the_page_and_loads_nothing(named: Report) -> None:
    page = named.html.read_text(encoding="utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(str(given["content"]) for tag, given in Tags(page).tags if "http-equiv" in given)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",
        "script-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert page.index("Content-Security-Policy") < page.index("<title>")


def test_what_is_hostile_is_text_in_a_spreadsheet(named: Report) -> None:
    cells = [
        cell
        for path in sorted((named.folder / "figures").glob("*.csv"))
        for row in csv.reader(path.read_text(encoding="utf-8").splitlines())
        for cell in row
    ]
    formulas = [cell for cell in cells if cell[:1] in ("=", "+", "-", "@") and not re.fullmatch(r"[+-][\d.e+-]*", cell)]
    assert formulas == []
    assert any(cell.startswith("'=1+1") for cell in cells)


def test_what_is_hostile_is_text_in_markdown(named: Report) -> None:
    text = (named.folder / "report.md").read_text(encoding="utf-8")
    fenced = re.sub(r"^(````+)\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "````\ncommeff grid ```" in text
    assert "alert(1)" in fenced
    assert not re.search(r"<(script|img)|(?<!\\)\]\((?!figures/)|(?<!\\)`|https?://|[\x00-\x08\x0b-\x1f\u202e]", fenced)
    for table in re.findall(r"(?:^\|.*\n)+", fenced, flags=re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_what_is_hostile_is_text_in_latex(named: Report) -> None:
    text = (named.folder / "tables.tex").read_text(encoding="utf-8")
    assert "input" in text
    assert not re.search(r"\\input|\\\\\s*[\[*]|(?<!\\)%x|[\x00-\x08\x0b-\x1f]", text)


def test_a_terminal_gets_no_escapes(named: Report, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["status", str(named.folder.parent), "--all"], ["report", str(named.folder.parent)]):
        with pytest.raises(SystemExit) as end:
            main(words)
        out, err = capsys.readouterr()
        assert end.value.code == 0
        assert "\\x1b[31mred\\x07\\u202e" in out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out + err)


def test_a_cell_of_latex_is_no_argument_of_the_line_before() -> None:
    text = tabular(Table.of([{"name": "one"}, {"name": "[1cm]"}, {"name": "*"}]))
    assert "1cm" in text
    assert not re.search(r"\\\\\s*[\[*]", text)


def test_what_is_hostile_is_text_in_a_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, one = tmp_path / "g.yaml", {"method": "psgd", "name": EVIL}
    base = {"task": "quadratic", "workers": 2, "steps": 2}
    file.write_text(json.dumps({"title": EVIL, "base": base, "grid": [one]}))
    for words in ([], ["--json"]):
        with pytest.raises(SystemExit) as end:
            main(["grid", str(file), "--dry-run", "--store", str(tmp_path / "store"), *words])
        out, err = capsys.readouterr()
        assert end.value.code == 0, err
        assert "onload" in out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out + err)
        assert len(out.splitlines()) == 1 or words
