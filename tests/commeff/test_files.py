"""What stands where a run reads or writes, and is no file, is refused at once and left as it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commeff.cluster import Cluster
from commeff.experiments.run.store import RunFolder
from commeff.files import appearing, regular, rewrite
from commeff.training.checkpoint import Checkpoints
from commeff.training.documents import CheckpointRefused
from commeff.training.recorder import Recorder


def claim(folder: Path) -> None:
    with RunFolder(folder).claimed():
        pass


WRITERS: dict[str, Callable[[Path], object]] = {
    "lock": claim,
    ".status.json.draft": lambda folder: rewrite(folder / "status.json", "{}"),
    ".latest.pt.draft": lambda folder: Checkpoints(folder).save({"step": 1}),
    "metrics.jsonl": lambda folder: Recorder(folder).write({"step": 1}),
    ".metrics.jsonl.draft": lambda folder: Recorder(folder).rewind(1),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_goes_through_no_link_and_waits_for_no_reader(name: str, tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    folder.mkdir()
    (folder / name).symlink_to(victim)
    with pytest.raises(OSError, match="is a link"):
        WRITERS[name](folder)
    assert victim.read_text() == "precious"
    assert (folder / name).is_symlink()
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(OSError, match=r"."):
        WRITERS[name](folder)


def test_a_pipe_in_place_of_a_checkpoint_or_a_cluster_is_refused(tmp_path: Path) -> None:
    for name in ("latest.pt", "cluster.yaml"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(CheckpointRefused, match="is no regular file"):
        Checkpoints(tmp_path).load()
    with pytest.raises(ValueError, match="is no regular file"):
        Cluster.load(tmp_path / "cluster.yaml")


def test_a_link_that_comes_between_two_looks_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "link").symlink_to(victim)
    monkeypatch.setattr(os.path, "islink", lambda path: False)
    with pytest.raises(OSError, match="symbolic links"):
        regular(str(tmp_path / "link"), os.O_WRONLY)
    assert victim.read_text() == "precious"


def test_what_is_refused_is_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="is no regular file"):
        regular(os.devnull, os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("shared", [True, False])
def test_what_cannot_be_written_whole_leaves_what_was_there_and_no_draft(shared: bool, tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    rewrite(file, "before", shared)

    def half(error: BaseException, path: Path) -> None:
        with appearing(path, shared) as draft:
            draft.write_text("half") if path == file else (draft / "part").mkdir(parents=True)
            raise error

    for path, error in ((file, KeyboardInterrupt()), (folder, ValueError("half")), (file, OSError(28, "full"))):
        with pytest.raises(type(error)):
            half(error, path)
    assert (file.read_text(), [path.name for path in tmp_path.iterdir()]) == ("before", ["file"])
    with appearing(folder, shared) as draft:
        (draft / "part").mkdir(parents=True)
        assert not folder.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


@pytest.mark.parametrize("name", ["a" * 255, "\u00e4" * 127, "\u0430" * 127, "\U0001f600" * 63])
def test_a_name_may_be_as_long_as_file_systems_take(name: str, tmp_path: Path) -> None:
    for shared in (True, False):
        rewrite(tmp_path / name, b"whole", shared)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"whole")]
