"""`--records`: finished runs in one file, from which another store has the same page without running anything."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid import command as grids
from commeff.experiments.report.data import computing
from commeff.experiments.run import archive
from commeff.experiments.run.store import RunFolder
from tests.experiments.test_reproduce import commeff, run_here
from tests.experiments.test_reproduce_pieces import CHANGES
from tests.experiments.test_reproduce_tuning import page, written


def finished(store: Path, *names: str, state: str = "done") -> list[Path]:
    """Runs of which nothing but the records is there."""
    for name in names:
        folder = RunFolder(store / name)
        folder.path.mkdir(parents=True)
        folder.create({"of": name}, {"cpu": "one"})
        folder.write("summary.json", {"val_loss": 1.0})
        (folder.path / "metrics.jsonl").write_text('{"step": 1}\n')
        folder.mark(state)
        (folder.path / "checkpoints").mkdir()
    return [store / name for name in names]


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


def test_records_add_up_and_only_finished_runs_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "runs.tar.xz"
    archive.pack(file, finished(tmp_path / "a", "one", "two"))
    archive.pack(file, [*finished(tmp_path / "b", "three"), *finished(tmp_path / "b", "four", state="killed")])
    assert list(archive.read(file)) == ["one", "three", "two"]
    again = tmp_path / "again.tar.xz"
    archive.pack(again, [tmp_path / "b" / "three", tmp_path / "a" / "two", tmp_path / "a" / "one"])
    assert again.read_bytes() == file.read_bytes()


def test_what_is_finished_or_runs_stays_as_it_is(tmp_path: Path) -> None:
    file, store = tmp_path / "runs.tar.xz", tmp_path / "store"
    archive.pack(file, finished(tmp_path / "a", "done", "busy", "killed", "new"))
    finished(store, "done")
    finished(store, "busy", "killed", state="killed")
    (store / "done" / "metrics.jsonl").write_text("own")
    with RunFolder(store / "busy").claimed():
        archive.unpack(file, store)
    states = {name: RunFolder(store / name).state for name in ("done", "busy", "killed", "new")}
    assert states == {"done": "done", "busy": "killed", "killed": "done", "new": "done"}
    assert (store / "done" / "metrics.jsonl").read_text() == "own"


def damaged(file: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    contents = {f"a/{name}": b"{}" for name in archive.FILES}
    change(contents)
    with tarfile.open(file, "w:xz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda files: files.update({"../status.json": b""}), "holds '../status.json', which is no record"),
        (lambda files: files.update({"/status.json": b""}), "holds '/status.json', which is no record"),
        (lambda files: files.update({"a/b/status.json": b""}), "holds 'a/b/status.json', which is no record"),
        (lambda files: files.update({"a/lock": b""}), "holds 'a/lock', which is no record"),
        (lambda files: files.pop("a/summary.json"), "lacks a/summary.json; remove it"),
    ],
)
def test_a_file_of_anything_else_is_refused(
    change: Callable[[dict[str, bytes]], object], words: str, tmp_path: Path
) -> None:
    damaged(tmp_path / "runs.tar.xz", change)
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        archive.unpack(tmp_path / "runs.tar.xz", tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(("content", "words"), [(b"no archive", "cannot be read"), (b"", "cannot be read")])
def test_a_damaged_file_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "runs.tar.xz").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        archive.check(tmp_path / "runs.tar.xz")


def test_links_are_no_records(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "runs.tar.xz", "w:xz") as tar:
        link = tarfile.TarInfo("a/status.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    with pytest.raises(ConfigError, match=r"cannot be read|no record"):
        archive.read(tmp_path / "runs.tar.xz")


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
