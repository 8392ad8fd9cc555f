"""Temporary folders: private, gone afterwards, and swept where their process was killed."""

from __future__ import annotations

import os
import signal
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from commeff.experiments.run.orphans import end_with_parent
from commeff.temporary import private_folder, sweep
from tests import owned


def hold(connection: Connection) -> None:
    end_with_parent()
    with private_folder() as folder:
        connection.send(folder)
        signal.pause()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_process_left_is_removed_at_the_next_start_and_what_lives_is_not(place: Path) -> None:
    ours, theirs = Pipe()
    process = owned.process(hold, (theirs,))
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


def test_a_sweep_leaves_alone_what_is_no_folder_of_ours(place: Path) -> None:
    elsewhere = place / "elsewhere"
    (elsewhere / "lock").mkdir(parents=True)
    link = place / f"commeff-{os.getuid()}-link"
    link.symlink_to(elsewhere)
    full = place / f"commeff-{os.getuid()}-full"
    full.mkdir()
    (full / "data").touch()  # and no lock: it was not made by this module
    sweep(place)
    assert link.is_symlink()
    assert (elsewhere / "lock").exists()
    assert (full / "data").exists()
