"""Who may take part in a run: processes of its user that know its secret, and nobody else."""

from __future__ import annotations

import os
import resource
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from multiprocessing import util
from pathlib import Path

import pytest
import torch.distributed as dist

from commeff.communicator import Transport
from commeff.communicator.wire import mailbox
from commeff.communicator.wire.mailbox import CREDENTIALS, Mailbox, enough_files, exchange_files
from commeff.communicator.wire.records import share_json
from commeff.experiments.grid.local.server import own_temporary_folder
from commeff.files import private_folder
from tests.laws.processes import on_processes
from tests.owned import fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pidfds and eventfds")


def in_fork(work: Callable[[], None]) -> int:
    """The process id of a fork that has done the work, and its exit code: 0, or 1 after an error."""
    child = fork()
    if not child:
        try:
            work()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def send(place: str, secret: str, rank: int, files: list[int]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(place)
        socket.send_fds(sender, [bytes.fromhex(secret) + rank.to_bytes(8)], files)


def test_what_strangers_send_is_dropped(tmp_path: Path) -> None:
    with closing(Mailbox(tmp_path)) as box, tempfile.TemporaryFile() as file:
        number, secret = box.address
        place, ours, files = f"/proc/{os.getpid()}/fd/{number}/doorbell", {3: os.getpid()}, [file.fileno()]
        before = len(os.listdir("/proc/self/fd"))
        send(place, "00" * 16, 3, 5 * files)  # another run's
        send(place, secret, 4, files)  # a rank that is not expected
        send(place, "", 0, [])
        assert in_fork(lambda: send(place, secret, 3, files)) == 0  # another process
        assert list(box.taken(ours, 1)) == []
        assert len(os.listdir("/proc/self/fd")) == before, "their files are closed"
        send(place, secret, 3, files)
        ((rank, (came,)),) = box.taken(ours, 1)
        assert (rank, os.path.sameopenfile(came, file.fileno())) == (3, True)
        assert not os.get_inheritable(came)
        os.close(came)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_finds_no_way_in() -> None:
    def visit(place: str, secret: str) -> Callable[[], None]:
        def work() -> None:
            os.setuid(65534)
            send(place, secret, 3, [0])

        return work

    with private_folder() as folder, closing(Mailbox(folder)) as box:
        number, secret = box.address
        for place in (f"/proc/{os.getpid()}/fd/{number}/doorbell", str(folder / "doorbell")):
            assert in_fork(visit(place, secret)) == 1
            send(place, secret, 3, [0])


@pytest.mark.skipif(os.getuid() != 0, reason="only root can call itself another user")
def test_what_another_user_sends_under_our_number_is_dropped(tmp_path: Path) -> None:
    with closing(Mailbox(tmp_path)) as box, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        number, secret = box.address
        sender.connect(f"/proc/{os.getpid()}/fd/{number}/doorbell")
        for user in (65534, os.getuid()):
            extras = [
                (socket.SOL_SOCKET, socket.SCM_CREDENTIALS, CREDENTIALS.pack(os.getpid(), user, os.getgid())),
                (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", 0)),
            ]
            sender.sendmsg([bytes.fromhex(secret) + (3).to_bytes(8)], extras)
        ((rank, (came,)),) = box.taken({3: os.getpid()}, 1)
        os.close(came)
        assert rank == 3


def test_a_message_without_its_files_is_dropped(tmp_path: Path) -> None:
    with closing(Mailbox(tmp_path)) as box, tempfile.TemporaryFile() as file:
        number, secret = box.address
        before = len(os.listdir("/proc/self/fd"))
        send(f"/proc/{os.getpid()}/fd/{number}/doorbell", secret, 3, [file.fileno()])
        assert list(box.taken({3: os.getpid()}, 2)) == []
        assert len(os.listdir("/proc/self/fd")) == before


def test_files_for_which_there_is_no_number_are_no_missing_process(tmp_path: Path) -> None:
    def work() -> None:
        with closing(Mailbox(tmp_path)) as box:
            number, secret = box.address
            send(f"/proc/{os.getpid()}/fd/{number}/doorbell", secret, 3, [0, 0])
            free, (_, most) = os.dup(0), resource.getrlimit(resource.RLIMIT_NOFILE)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, most))
            list(box.taken({3: os.getpid()}, 2))

    assert in_fork(work) == 1


def test_who_has_all_still_hands_over_his_own(tmp_path: Path) -> None:
    with closing(Mailbox(tmp_path)) as box:
        number, secret = box.address
        send(f"/proc/{os.getpid()}/fd/{number}/doorbell", secret, 1, [0])
        nowhere = {1: (str(tmp_path / "not yet"), secret)}
        with pytest.raises(RuntimeError, match=r"process 1 of the group did not come to the doorbells within 0\.1 s"):
            mailbox._hand_over(box, 0, {1: os.getpid()}, nowhere, {1: [0]}, 0.1)


def test_who_does_not_come_is_named() -> None:
    def run() -> str:
        rank, pids = dist.get_rank(), share_json(os.getpid())
        if rank == 2:
            with private_folder() as folder, closing(Mailbox(folder)) as box:
                share_json(box.address)
                share_json("it takes part in all calls, and hands over nothing")
            return ""
        with pytest.raises(RuntimeError) as failure:
            exchange_files(None, rank, pids, {peer: [0] for peer in range(3) if peer != rank}, 0.5)
        share_json("go on")
        return str(failure.value)

    line = "process 2 of the group did not come to the doorbells within 0.5 s"
    assert on_processes(3, run) == [line, line, ""]


def test_who_has_left_is_named(tmp_path: Path) -> None:
    gone = fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    places = {1: (f"/proc/{gone}/fd/3/doorbell", "00")}
    left = "process 1 of the group left before the doorbells were connected"
    with closing(Mailbox(tmp_path)) as box, pytest.raises(RuntimeError, match=left):
        mailbox._hand_over(box, 0, {1: gone}, places, {1: [0]}, 60.0)


def test_a_long_temporary_folder_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("a" * 120) / ("b" * 120)
    long.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    def run() -> tuple[int, int]:
        ours = Transport(dist.group.WORLD, alone=False)
        share_json(None)
        assert ours._shared_memory is not None
        return len(ours._shared_memory.near), len([*long.glob("commeff-*")])

    assert on_processes(3, run) == [(2, 1)] * 3, "the folder of the crew is still there, and no other"
    assert not [*long.iterdir()]


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


def test_too_few_open_files_are_named() -> None:
    def run() -> str:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 3, most))
        try:
            Transport(dist.group.WORLD, alone=False)
        except RuntimeError as error:
            return str(error)
        return ""

    for line in on_processes(3, run):
        assert line.startswith("the limit of open files must be about ")
        assert line.endswith("` raises it")
        assert "for 3 processes" in line
        assert "ulimit -n " in line


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), RuntimeError("socket: Too many open files")])
def test_only_a_lack_of_files_is_called_so(error: Exception) -> None:
    with pytest.raises(RuntimeError, match=r"ulimit -n \d+"), enough_files(4):
        raise error
    with pytest.raises(RuntimeError, match=r"^else$"), enough_files(4):
        raise RuntimeError("else")
