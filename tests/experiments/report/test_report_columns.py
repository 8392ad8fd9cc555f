"""Columns of the main table, and a grid over a setting of the task: a table and figures for each of its values."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from commeff.experiments.report.data import summary
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.draw.plots import looks
from commeff.experiments.report.write import html, writing
from commeff.experiments.report.write.table_main import ROOM, main_tables
from commeff.experiments.report.write.writing import write_report
from tests.experiments.report.report_stores import Forged, forge


def three(store: Path) -> Path:
    runs = [Forged(method, seed, accuracy=0.9 + seed / 100) for method in ("psgd", "dsgd", "choco") for seed in (0, 1)]
    return forge(store, runs, target={"val_accuracy": 0.85})


def test_the_columns_asked_for_are_the_main_table_and_the_others_the_second(tmp_path: Path) -> None:
    store = three(tmp_path)
    usual = main_tables(analyse(store))
    asked = ["wire_bytes", "val_loss", "method", "start_loss"]
    for path in store.glob("*/summary.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"start_loss": 2.5}))
    first, *others = main_tables(analyse(store), columns=asked)
    assert [column.heading for column in first.columns] == ["variant", "wire", "val. loss", "method", "start loss"]
    assert all(column.brief and column.printed for column in first.columns)
    assert [item.text for item in first.rows[1]][3:] == ["dsgd", "2.500"]
    every = {column.heading for table in usual for column in table.columns}
    assert every <= {column.heading for table in (first, *others) for column in table.columns}
    assert sum(column.heading == "wire" for table in (first, *others) for column in table.columns) == 1
    assert list(first.data) == [*usual[0].data], "the file has everything, whatever is shown"


def test_no_table_is_wider_than_the_page(tmp_path: Path) -> None:
    """However long names are and whatever was measured."""
    store = three(tmp_path)
    inside = {f"{axis}_{what}": 5e6 for axis in ("tensor", "shard") for what in ("bytes", "exposed_seconds")}
    for path in store.glob("*/summary.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | inside))
    first, *others = main_tables(analyse(store))
    assert [table.name for table in others] == ["more", "more2"][: len(others)]
    assert len(others) >= 1
    for table in (first, *others):
        widths = [
            max(len(text) for text in (column.heading, *(row[i].plain for row in table.rows)))
            for i, column in enumerate(table.columns)
        ]
        assert sum(widths) + 2 * len(widths) < ROOM
    assert {column.heading for column in first.columns} >= {"seeds", "val. accuracy", "wire", "saving"}


@pytest.mark.parametrize(("name", "near"), [("wire_byte", "wire_bytes"), ("optimizer.rl", "optimizer.lr")])
def test_a_column_that_is_not_there_is_refused_before_anything_is_written(name: str, near: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"--columns must be of .*got '{name}'.*did you mean {near}") as refused:
        write_report(three(tmp_path / "store"), tmp_path / "out", columns=["seeds", name])
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_no_column_is_refused_and_none_is_offered_that_no_run_has(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--columns must be of .*seeds.*, got none") as refused:
        write_report(three(tmp_path / "store"), tmp_path / "out", columns=[])
    assert "shard_bytes" not in str(refused.value)


LEVELS = {("psgd", "0.1"): 0.7, ("dsgd", "0.1"): 0.6, ("psgd", "1"): 0.9, ("dsgd", "1"): 0.95, ("choco", "1"): 0.92}


def heterogeneous(store: Path, methods: tuple[str, ...] = ("psgd", "dsgd"), **head: object) -> Path:
    """Methods x alpha, alpha in the place of the rate."""
    runs = [
        Forged(method, seed, alpha, accuracy=level + seed / 100)
        for (method, alpha), level in LEVELS.items()
        for seed in (0, 1)
        if method in methods
    ]
    forge(store, runs, **{"select": None, **head})
    path = store / "grids" / "forged.json"
    plan = json.loads(path.read_text())
    for cell in plan["cells"]:
        cell["labels"]["task.alpha"] = cell["labels"].pop("optimizer.lr")
    path.write_text(json.dumps(plan))
    return store


def test_a_setting_of_the_task_parts_a_grid(tmp_path: Path) -> None:
    analysis = analyse(heterogeneous(tmp_path))
    assert [variant.name for variant in analysis.variants] == [
        "psgd alpha=0.1",
        "dsgd alpha=0.1",
        "psgd alpha=1",
        "dsgd alpha=1",
    ]
    low, high = analysis.parts
    assert [row.variant.name for row in low.rows] == ["psgd alpha=0.1", "dsgd alpha=0.1"]
    assert {task: best.name for task, best in analysis.champions.items()} == {
        "alpha=0.1": "psgd alpha=0.1",
        "alpha=1": "dsgd alpha=1",
    }
    for part, level in ((low, 0.705), (high, 0.905)):
        assert part.target is not None
        assert part.target.level == pytest.approx(level - 0.01), "each what its own baseline reaches"
    for row in analysis.rows:
        assert row.baseline is not None
        assert row.baseline.task == row.variant.task
    looked = looks(analysis)
    assert looked[0] == looked[2] != looked[1] == looked[3], "a method looks the same everywhere"
    assert looks(high)[3] == looked[3]
    first, second, *_ = summary.findings(analysis)
    assert first.startswith("Best mean validation accuracy of 2 variants at alpha=0.1: psgd alpha=0.1, 70.5")
    assert second.startswith("Best mean validation accuracy of 2 variants at alpha=1: dsgd alpha=1, 95.5")


def test_a_parted_grid_has_a_table_and_figures_a_part(tmp_path: Path) -> None:
    analysis = analyse(heterogeneous(tmp_path))
    names = {figure.name for figure in writing._figures(analysis, [], [])}
    assert {"convergence_alpha_0_1", "convergence_alpha_1", "pareto_alpha_0_1", "pareto_alpha_1"} <= names
    assert not names & {"convergence", "pareto", "consensus"}
    tables = {table.name: table for table in writing._tables(analysis, [], None)}
    assert [name for name in tables if name.startswith("main")] == ["main_alpha_0_1", "main_alpha_1"]
    assert len(main_tables(analysis)[0].data) == 4, "the file main.csv has all of them"
    page = html.page(analysis, tables, {}, [], tmp_path)
    assert page.index("main_alpha_0_1.csv") < page.index("main_alpha_1.csv")
    keys = re.findall(r'<div class="key">(.*?)</div>', page)
    assert keys
    assert {len(re.findall("<button", key)) for key in keys} == {2}, "a button a method"


def test_a_setting_that_belongs_to_a_method_parts_nothing(tmp_path: Path) -> None:
    """One of the methods has one alpha alone; and one method over alphas is compared over them."""
    assert len(analyse(heterogeneous(tmp_path / "a", ("psgd", "choco"))).parts) == 1
    assert len(analyse(heterogeneous(tmp_path / "b", ("psgd",))).parts) == 1
