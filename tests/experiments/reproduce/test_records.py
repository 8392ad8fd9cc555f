"""`--records`: finished runs in one file, from which another store has the same page without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config.contained import Interrupt
from commeff.experiments.grid import command as grids
from commeff.experiments.report.data import computing
from commeff.experiments.reproduce import command
from commeff.experiments.run import archive
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import FINISHED, RunFolder
from tests.experiments.reproduce.test_pieces import CHANGES
from tests.experiments.reproduce.test_reproduce import commeff, run_here
from tests.experiments.reproduce.test_tuning import page, written
from tests.experiments.run.stored_runs import finished, name_of
from tests.experiments.run.test_archive import full


def done(store: Path) -> set[str]:
    """The runs of a store that are finished."""
    return {path.parent.name for path in store.glob("*/status.json") if RunFolder(path.parent).state in FINISHED}


def test_another_store_has_the_same_page_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, records = written(tmp_path, **CHANGES), tmp_path / "kept" / "runs.tar.xz"
    monkeypatch.setattr(grids, "run", run_here)
    assert commeff(file, "--store", str(tmp_path / "one"), "--records", str(records))[0] == 0
    first = records.read_bytes()
    code, text = commeff(file, "--store", str(tmp_path / "dry"), "--records", str(records), "--dry-run")
    assert (code, text.count("0 to run")) == (0, 2), text

    def nothing(request: grids.Request) -> grids.Outcome:
        assert all(cell.finished for cell in grids.prepare(request, rehearsed=False)[1])
        return run_here(request)

    monkeypatch.setattr(grids, "run", nothing)
    assert commeff(file, "--store", str(tmp_path / "two"), "--records", str(records))[0] == 0
    for name in ("report.md", "values.csv"):
        assert page(tmp_path / "one", name) == page(tmp_path / "two", name)
    assert records.read_bytes() == first
    assert set(archive.read(records)) == done(tmp_path / "one") == done(tmp_path / "two")
    assert "belong to this table" not in text
    assert [path.name for path in records.parent.iterdir()] == ["runs.tar.xz"]


def test_data_may_lie_elsewhere_than_where_the_runs_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libsvm").mkdir()
    (tmp_path / "libsvm" / "mushrooms").write_bytes(b"1 3:1\n2 7:0.5\n" * 4062)
    base = {"task": "risk", "task.data": "mushrooms", "workers": 2, "steps": 2, "checkpoint_every": 0}
    changes: dict[str, Any] = {"base": base, "grid": [{"name": "a", "method": "psgd"}], "tune": None}
    file = written(tmp_path, **changes, show=["sent_bytes"], claims=["final('sent_bytes')(r.a) > 0"], figure=None)
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


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry-run"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(
    dry: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "run", None)
    file, store = written(tmp_path, **CHANGES), tmp_path / "store"
    for place, words in (
        (f"{file}/x.tar.xz", f"the folder of --records must be a folder, got {file}: {file} is none; choose another"),
        ("/proc/x.tar.xz", "the folder of --records /proc cannot be written ("),
    ):
        code, text = commeff(file, "--store", str(store), "--records", place, *dry)
        assert (code, text.count("\n"), words in text) == (2, 1, True), text
        assert not store.exists()


def test_the_page_is_written_where_the_file_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, records = written(tmp_path, **CHANGES), tmp_path / "runs.tar.xz"
    monkeypatch.setattr(grids, "run", run_here)
    with monkeypatch.context() as patch:
        patch.setattr(archive, "rewrite", full)
        code, text = commeff(file, "--store", str(tmp_path / "store"), "--records", str(records))
    assert code == 2
    assert text.splitlines()[-1].startswith(f"commeff: --records {records} cannot be written ([Errno 28] No space left")
    assert text.count("commeff: ") == 1
    assert "--records" not in page(tmp_path / "store")
    assert commeff(file, "--store", str(tmp_path / "store"), "--records", str(records))[0] == 0
    assert set(archive.read(records)) == done(tmp_path / "store")


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), Interrupt(), RuntimeError("a fault of ours")])
@pytest.mark.parametrize("room", [True, False], ids=["room", "full"])
def test_what_is_done_is_kept_where_training_ends_by_an_error(
    error: BaseException, room: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, records, store = written(tmp_path, **CHANGES), tmp_path / "runs.tar.xz", tmp_path / "store"

    def ending(request: grids.Request) -> grids.Outcome:
        for cell in grids.prepare(request, rehearsed=False)[1][:2]:
            run_one(cell.config, cell.folder)
        raise error

    monkeypatch.setattr(grids, "run", ending)
    if not room:
        monkeypatch.setattr(archive, "rewrite", full)
    with pytest.raises(type(error)) as raised:
        command.reproduce(command.Arguments(file, store=store, records=records))
    assert raised.value is error
    assert len(done(store)) == 2
    assert set(archive.read(records)) == (done(store) if room else set())


def test_each_piece_leaves_what_is_done_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, records, store = written(tmp_path, **CHANGES), tmp_path / "runs.tar.xz", tmp_path / "store"

    def piece(request: grids.Request) -> grids.Outcome:
        cells = grids.prepare(request, rehearsed=False)[1]
        left = [cell for cell in cells if not cell.finished]
        for cell in left[:3]:
            run_one(cell.config, cell.folder)
        states = {cell.folder.name: RunFolder(cell.folder).state for cell in cells}
        return grids.Outcome(cells, states, left=frozenset(cell.folder.name for cell in left[3:]))

    monkeypatch.setattr(grids, "run", piece)
    counts = list[int]()
    while not (store / "pages").exists():
        code, text = commeff(file, "--store", str(store), "--records", str(records))
        assert code == 0, text
        assert set(archive.read(records)) == done(store)
        counts.append(len(done(store)))
    assert counts == [3, 7, 10], "4 that tune, in two pieces; 6 that are judged, the first 3 in the second"


def test_runs_of_another_table_are_counted_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, records = written(tmp_path, **CHANGES), tmp_path / "runs.tar.xz"
    archive.pack(records, finished(tmp_path / "other", 1, 2))
    monkeypatch.setattr(grids, "run", run_here)
    own = ("--store", str(tmp_path / "store"), "--records", str(records))
    told = f"of the {{}} runs in {records} belong to this table at scale full"
    for dry, line in (["--dry-run"], "0 " + told.format(2)), ([], "0 " + told.format(2)), ([], "10 " + told.format(12)):
        code, text = commeff(file, *own, *dry)
        assert (code, text.splitlines()[0].startswith(line)) == (0, True), text
    assert {name_of(1), name_of(2)} < set(archive.read(records))


@pytest.mark.parametrize(
    ("table", "name", "words"),
    [
        ("bias_floors", "runs.zip", "--records must end in .tar.xz"),
        ("topologies", "runs.tar.xz", "topologies trains nothing that --records could keep"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(table: str, name: str, words: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from commeff.experiments.cli import app

    result = CliRunner().invoke(app, ["reproduce", table, "--records", str(tmp_path / name), "--store", str(tmp_path)])
    assert (result.exit_code, words in result.output) == (2, True)
    assert not list(tmp_path.iterdir())
