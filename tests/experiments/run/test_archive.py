"""A file of records is believed as a whole or not at all, whatever has become of it."""

from __future__ import annotations

import errno
import io
import lzma
import os
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run import archive
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.store import FINISHED, RunFolder
from commeff.files import regular
from tests.experiments.run.stored_runs import config_of, finished, members, name_of, tarred, write

RUNS = 12


def full(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refused(file: Path, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        archive.check(file)
    assert len(caught.value.faults) == 1


def test_records_add_up_and_only_finished_runs_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "runs.tar.xz"
    archive.pack(file, finished(tmp_path / "a", 1, 2))
    archive.pack(file, [*finished(tmp_path / "b", 3), *finished(tmp_path / "b", 4, state="killed")])
    assert list(archive.read(file)) == sorted(map(name_of, (1, 2, 3)))
    again = tmp_path / "again.tar.xz"
    archive.pack(again, [tmp_path / "b" / name_of(3), tmp_path / "a" / name_of(2), tmp_path / "a" / name_of(1)])
    assert again.read_bytes() == file.read_bytes()


def test_graphs_travel_and_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    file, victim = tmp_path / "runs.tar.xz", tmp_path / "victim"
    (folder,) = finished(tmp_path / "a", 1)
    (folder / "graphs.json").write_text("{}")
    archive.pack(file, [folder])
    archive.unpack(file, tmp_path / "b")
    assert (tmp_path / "b" / name_of(1) / "graphs.json").read_text() == "{}"
    victim.write_text("mine")
    (tmp_path / "c" / name_of(1)).mkdir(parents=True)
    (tmp_path / "c" / name_of(1) / "metrics.jsonl").symlink_to(victim)
    with pytest.raises(OSError, match="is a link"):
        archive.unpack(file, tmp_path / "c")
    assert victim.read_text() == "mine"


def test_a_run_of_the_store_takes_the_place_of_that_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "runs.tar.xz"
    archive.pack(file, finished(tmp_path / "a", 1))
    (folder,) = finished(tmp_path / "b", 1)
    (folder / "metrics.jsonl").write_text('{"step": 2}\n')
    archive.pack(file, [folder])
    assert archive.read(file)[name_of(1)]["metrics.jsonl"] == b'{"step": 2}\n'


def test_what_is_finished_or_runs_stays_as_it_is(tmp_path: Path) -> None:
    file, store = tmp_path / "runs.tar.xz", tmp_path / "store"
    done, busy, killed, new = map(name_of, range(4))
    archive.pack(file, finished(tmp_path / "a", 0, 1, 2, 3))
    finished(store, 0)
    finished(store, 1, 2, state="killed")
    (store / done / "metrics.jsonl").write_text("own")
    with RunFolder(store / busy).claimed():
        assert sorted(archive.unpack(file, store)) == sorted([done, busy, killed, new])
    states = [RunFolder(store / name).state for name in (done, busy, killed, new)]
    assert states == ["done", "killed", "done", "done"]
    assert (store / done / "metrics.jsonl").read_text() == "own"


@pytest.mark.parametrize("killed", [[], [1]], ids=["new", "killed"])
@pytest.mark.parametrize("written", range(len(archive.FILES)))
def test_a_run_that_is_unpacked_in_part_is_not_finished(
    written: int, killed: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.pack(tmp_path / "runs.tar.xz", finished(tmp_path / "a", 1))
    finished(tmp_path / "store", *killed, state="killed")
    left = [written + 1]  # the archive is opened first

    def until_full(path: str, flags: int) -> int:
        left[0] -= 1
        return regular(path, flags) if left[0] >= 0 else full()

    monkeypatch.setattr(archive, "regular", until_full)
    with pytest.raises(OSError, match="No space left"):
        archive.unpack(tmp_path / "runs.tar.xz", tmp_path / "store")
    assert RunFolder(tmp_path / "store" / name_of(1)).state not in FINISHED


def test_one_flipped_bit_of_any_header_loses_no_run_silently(tmp_path: Path) -> None:
    file, content = tmp_path / "runs.tar.xz", tarred(members(*range(RUNS)))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        headers = [member.offset for member in tar]
    assert len(headers) == RUNS * len(archive.FILES)
    for start in headers:
        flipped = bytearray(content)
        flipped[start + 20] ^= 4
        file.write_bytes(lzma.compress(bytes(flipped)))
        refused(file, "cannot be read (")


def test_an_archive_that_is_cut_between_runs_is_refused(tmp_path: Path) -> None:
    file, content = tmp_path / "runs.tar.xz", tarred(members(*range(RUNS)))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        starts = [member.offset for member in tar]
    for end in starts:
        for zeros in (0, 512):
            file.write_bytes(lzma.compress(content[:end] + bytes(zeros)))
            refused(file, "it is damaged or cut off behind " if end + zeros else "cannot be read (")


def test_a_damaged_stream_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "runs.tar.xz", members(*range(RUNS)))
    packed = file.read_bytes()
    for position in range(len(packed)):
        file.write_bytes(packed[:position] + bytes([packed[position] ^ 16]) + packed[position + 1 :])
        refused(file, "cannot be read (")
    for damaged in (b"", b"no archive", packed[:-1], packed + b"\0", packed + packed):
        file.write_bytes(damaged)
        refused(file, "cannot be read (")


def test_a_file_that_unpacks_to_more_than_memory_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "runs.tar.xz", members(1) | {f"{name_of(1)}/metrics.jsonl": bytes(1 << 21)})
    assert len(file.read_bytes()) < 10_000
    archive.check(file)
    monkeypatch.setattr(archive, "LARGEST", 1 << 20)
    refused(file, "it is larger than 1 MiB")
    (folder,) = finished(tmp_path / "a", 1)
    (folder / "metrics.jsonl").write_bytes(bytes(1 << 21))
    with pytest.raises(ConfigError, match=r"other\.tar\.xz would hold more than 1 MiB"):
        archive.pack(tmp_path / "other.tar.xz", [folder])
    assert not (tmp_path / "other.tar.xz").exists()


SECOND = {f"{name_of(1)}/config.yaml": members(2)[f"{name_of(2)}/config.yaml"]}
FOREIGN = config_of(1) | {"method": {"_target_": "/nowhere/nobodys.py:mine"}}
SIGNS = config_of(1) | {"method": {"_target_": "commeff.methods.\x1b[31m"}}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (members(1, name=".."), "holds '../config.yaml', which is no record"),
        (members(1) | {"/status.json": b""}, "holds '/status.json', which is no record"),
        (members(1) | {"a/b/status.json": b""}, "holds 'a/b/status.json', which is no record"),
        (members(1) | {f"{name_of(1)}/lock": b""}, "lock', which is no record"),
        (members(1, name="grids"), "holds 'grids/config.yaml', which is no record"),
        (members(1, name="a\nb"), r"holds 'a\nb/config.yaml', which is no record"),
        (members(1, config=SIGNS, name=run_id(SIGNS)), r"holds '\x1b[31m-quadratic-"),
        (members(1, name="psgd-digits-0123456789"), f"whose config.yaml is that of '{name_of(1)}'"),
        (members(1, 2) | SECOND, f"holds '{name_of(1)}', whose config.yaml is that of '{name_of(2)}'"),
        (members(1, config=FOREIGN), "'/nowhere/nobodys.py:mine' is unknown here"),
        (members(1, config={}), "records cannot be read (KeyError: "),
        (members(1, config=["method"]), "records cannot be read (ValueError: names and values must be there, not list"),
        (members(1) | {f"{name_of(1)}/config.yaml": b"\xff{"}, "records cannot be read (UnicodeDecodeError: "),
        (members(1) | {f"{name_of(1)}/summary.json": b"{"}, "records cannot be read (JSONDecodeError: "),
        (members(1) | {f"{name_of(1)}/summary.json": b"{}"}, "which is killed, not done or diverged"),
        (members(1, state="running"), "which is killed, not done or diverged"),
        (members(1, state="failed"), "which is failed, not done or diverged"),
        ({k: v for k, v in members(1).items() if "env" not in k}, f"lacks {name_of(1)}/env.json; remove it"),
    ],
)
def test_a_file_of_anything_but_finished_runs_is_refused(files: dict[str, bytes], words: str, tmp_path: Path) -> None:
    file = write(tmp_path / "runs.tar.xz", files)
    refused(file, words)
    with pytest.raises(ConfigError):
        archive.unpack(file, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_no_file_of_a_run_comes_twice(tmp_path: Path) -> None:
    content = tarred(members(1))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        end = max(member.offset_data for member in tar) + tarfile.BLOCKSIZE
    (tmp_path / "runs.tar.xz").write_bytes(lzma.compress(content[:end] + content))
    refused(tmp_path / "runs.tar.xz", f"holds '{name_of(1)}/config.yaml' twice; remove it to begin anew")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_what_is_no_plain_file_is_no_record(kind: bytes, tmp_path: Path) -> None:
    link = tarfile.TarInfo(f"{name_of(1)}/status.json")
    link.type, link.linkname = kind, "/etc/hostname"
    with tarfile.open(tmp_path / "runs.tar.xz", "w:xz") as tar:
        tar.addfile(link)
    refused(tmp_path / "runs.tar.xz", "status.json', which is no record of a run")


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tar.xz")
    (tmp_path / "folder.tar.xz").mkdir()
    write(tmp_path / "runs.tar.xz", members(1))
    (tmp_path / "link.tar.xz").symlink_to(tmp_path / "runs.tar.xz")
    (tmp_path / "dangling.tar.xz").symlink_to(tmp_path / "nothing.tar.xz")
    for name in ("pipe", "folder"):
        refused(tmp_path / f"{name}.tar.xz", f"must be a regular file, got {tmp_path}/{name}.tar.xz, which is none")
    for name in ("link", "dangling"):
        refused(tmp_path / f"{name}.tar.xz", f"must be a regular file, got the link {tmp_path}/{name}.tar.xz; give")


def test_a_full_disk_leaves_the_file_as_it_was_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept" / "runs.tar.xz"
    archive.pack(file, finished(tmp_path / "a", 1))
    before, others = file.read_bytes(), finished(tmp_path / "a", 2)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=rf"--records {file} cannot be written .*No space left on device.*same comm"):
        archive.pack(file, others)
    assert [path.name for path in file.parent.iterdir()] == ["runs.tar.xz"]
    assert file.read_bytes() == before


def test_a_name_may_be_as_long_as_a_file_system_lets_it(tmp_path: Path) -> None:
    archive.pack(tmp_path / f"{'a' * 248}.tar.xz", finished(tmp_path / "a", 1))
    assert len(archive.read(tmp_path / f"{'a' * 248}.tar.xz")) == 1


def test_a_run_of_the_store_that_is_another_is_not_kept(tmp_path: Path) -> None:
    file, (first, second) = tmp_path / "runs.tar.xz", finished(tmp_path / "a", 1, 2)
    (first / "config.yaml").write_bytes((second / "config.yaml").read_bytes())
    with pytest.raises(ConfigError, match=f"cannot keep this: .* is that of {name_of(2)!r}; remove it there"):
        archive.pack(file, [first, second])
    assert list(archive.read(file)) == [name_of(2)]


@pytest.mark.parametrize("file", sorted(Path(__file__).parents[3].glob("results/*/*/runs.tar.xz")), ids=str)
def test_files_beside_the_pages_are_read(file: Path) -> None:
    runs: dict[str, Any] = archive.read(file)
    assert runs
