"""`--records`: finished runs in one file, from which another store has the same page without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.grid import command as grids
from commeff.experiments.report.data import computing
from tests.experiments.test_reproduce import commeff, run_here
from tests.experiments.test_reproduce_pieces import CHANGES
from tests.experiments.test_reproduce_tuning import page, written


def test_another_store_has_the_same_page_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, records = written(tmp_path, **CHANGES), tmp_path / "kept" / "runs.tar.xz"
    monkeypatch.setattr(grids, "run", run_here)
    assert commeff(file, "--store", str(tmp_path / "one"), "--records", str(records))[0] == 0
    first = records.read_bytes()
    code, text = commeff(file, "--store", str(tmp_path / "dry"), "--records", str(records), "--dry-run")
    assert (code, text.count("0 to run")) == (0, 2), text

    def nothing(request: grids.Request) -> grids.Outcome:
        assert all(cell.finished for cell in grids.prepare(request)[1])
        return run_here(request)

    monkeypatch.setattr(grids, "run", nothing)
    assert commeff(file, "--store", str(tmp_path / "two"), "--records", str(records))[0] == 0
    for name in ("report.md", "values.csv"):
        assert page(tmp_path / "one", name) == page(tmp_path / "two", name)
    assert records.read_bytes() == first
    assert [path.name for path in records.parent.iterdir()] == ["runs.tar.xz"]


def test_data_may_lie_elsewhere_than_where_the_runs_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "mushrooms").write_bytes(b"1 3:1\n2 7:0.5\n" * 4062)
    base = {"task": "risk", "task.data": "mushrooms", "workers": 2, "steps": 2, "checkpoint_every": 0}
    changes: dict[str, Any] = {"base": base, "grid": [{"name": "a", "method": "psgd"}], "tune": None}
    file = written(tmp_path, **changes, of="sent_bytes", show=["sent_bytes"], claims=["a > 0"], figure=None)
    records = ("--records", str(tmp_path / "runs.tar.xz"))
    monkeypatch.setattr(grids, "run", run_here)
    monkeypatch.setenv("COMMEFF_DATA", str(tmp_path))
    code, text = commeff(file, *records, "--store", str(tmp_path / "one"))
    assert code == 0, text
    monkeypatch.delenv("COMMEFF_DATA")
    computing._counted.cache_clear()  # a new process knows nothing of the first one's data
    code, text = commeff(file, f"data_dir={tmp_path}", *records, "--store", str(tmp_path / "two"))
    assert code == 0, text
    assert page(tmp_path / "one", "values.csv") == page(tmp_path / "two", "values.csv")


@pytest.mark.parametrize(
    ("table", "name", "words"),
    [
        ("bias_floors", "runs.zip", "--records must end in .tar.xz"),
        ("topologies", "runs.tar.xz", "topologies trains nothing that --records could keep"),
        ("peers", "runs.tar.xz", "peers trains nothing that --records could keep"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(table: str, name: str, words: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from commeff.experiments.cli import app

    result = CliRunner().invoke(app, ["reproduce", table, "--records", str(tmp_path / name), "--store", str(tmp_path)])
    assert (result.exit_code, words in result.output) == (2, True)
    assert not list(tmp_path.iterdir())
