"""Temporary folders: private, gone afterwards, and swept where their process was killed."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing import Pipe, util
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.grid.local.server import ForkServer, own_temporary_folder
from commeff.experiments.run.orphans import end_with_parent
from commeff.experiments.run.runner import run_one
from commeff.files import private_folder, sweep
from tests import owned
from tests.laws.processes import on_processes


def hold(connection: Connection) -> None:
    end_with_parent()
    with private_folder() as folder:
        connection.send(folder)
        signal.pause()


def serve(connection: Connection) -> None:
    """As the runner of a grid, which forks its cells from a server."""
    end_with_parent()
    ForkServer()
    connection.send(Path(util.get_temp_dir()))
    signal.pause()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("commeff.experiments.grid.local.server.LONGEST", 1000)  # no socket comes here
    return tmp_path


@pytest.mark.parametrize("work", [hold, serve])
def test_what_a_killed_process_left_is_removed_at_the_next_start_and_what_lives_is_not(
    work: Callable[[Connection], None], place: Path
) -> None:
    ours, theirs = Pipe()
    process = owned.process(work, (theirs,))
    process.start()
    try:
        theirs.close()
        left = ours.recv()
        with private_folder() as own:
            assert left.exists()
            assert own.stat().st_mode & 0o777 == 0o700
    finally:
        process.kill()
        process.join()
    assert left.exists()
    with private_folder() as own:
        assert [*place.iterdir()] == [own]
    assert [*place.iterdir()] == []


def test_a_run_of_one_process_removes_it_too(place: Path) -> None:
    left = place / f"commeff-{os.getuid()}-left"
    left.mkdir()
    (left / "lock").touch()
    run_one(compose(["task=quadratic", "workers=2", "steps=1"]), place / "run")
    assert not left.exists()


def test_a_sweep_leaves_alone_what_is_no_folder_of_ours(place: Path) -> None:
    elsewhere = place / "elsewhere"
    (elsewhere / "lock").mkdir(parents=True)
    link = place / f"commeff-{os.getuid()}-link"
    link.symlink_to(elsewhere)
    full = place / f"commeff-{os.getuid()}-full"
    full.mkdir()
    (full / "data").touch()  # and no lock: it was not made by this module
    sweep()
    assert link.is_symlink()
    assert (elsewhere / "lock").exists()
    assert (full / "data").exists()


def test_sockets_of_multiprocessing_fit(tmp_path: Path) -> None:
    def run() -> tuple[str, str | None]:
        tempfile.tempdir = str(tmp_path / ("a" * 120))
        own_temporary_folder()
        folder = util.get_temp_dir()
        assert os.stat(folder).st_mode & 0o077 == 0
        (Path(folder) / "lock").unlink()
        os.rmdir(folder)
        return folder, tempfile.tempdir

    ((folder, kept),) = on_processes(1, run)
    assert len(folder) < 80 < len(kept)
