"""How processes of one user and run hand each other open files, and nobody else takes part.

Every process has a socket in a folder of its own that other users cannot enter, under a name that nobody can guess.
What comes counts if the kernel says that it is from the process it should be from, under our user, and if it names the
secret that this process has told the group. The rest is thrown away.
"""

from __future__ import annotations

import errno
import os
import resource
import secrets
import select
import socket
import struct
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from commeff.communicator.wire.records import share_json
from commeff.files import private_folder

CREDENTIALS = struct.Struct("3i")  # process, user, group
SECRET = 16  # bytes
RETRY = 0.01  # seconds until a mailbox that was full is tried again
LOOK = 0.1  # seconds between two looks whether the others still live
LATER = (errno.EAGAIN, errno.ECONNREFUSED, errno.ENOENT, errno.ENOBUFS, errno.ETOOMANYREFS)  # what may pass
PER_PROCESS = 8  # open files that another process of the machine takes, at most: gloo's, ours, and the parent's pipes
BELL = "doorbell"

Address = tuple[int, str]  # the open folder of a process, and its secret


@contextmanager
def enough_files(processes: int) -> Iterator[None]:
    """Say in one line that processes of so many need more open files than they may have."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch's errors have no number
        if getattr(error, "errno", None) != errno.EMFILE and "Too many open files" not in str(error):
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        needed = -(-(limit + PER_PROCESS * processes + 32) // 64) * 64
        raise RuntimeError(
            f"the limit of open files must be about {needed} for {processes} processes, got {limit}: they hold "
            f"connections to each other; `ulimit -n {needed}` raises it"
        ) from None


class Mailbox:
    """Where this process is handed the files of others of its machine.

    The folder is reached by its number (/proc/PID/fd), so that its path may be long, and lie where others do not see
    it.

    Parameters
    ----------
    folder : path
        Private to this user, and empty.
    """

    def __init__(self, folder: Path) -> None:
        self._number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._secret = secrets.token_bytes(SECRET)
        self._socket = _datagrams()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(_path(os.getpid(), self._number))

    @property
    def address(self) -> Address:
        """What others of the group are told."""
        return self._number, self._secret.hex()

    def close(self) -> None:
        """Take nothing more."""
        self._socket.close()
        os.close(self._number)

    def fileno(self) -> int:
        """For `poll`."""
        return self._socket.fileno()

    def taken(self, pids: Mapping[int, int], count: int) -> Iterator[tuple[int, list[int]]]:
        """The rank of each process that has sent its `count` files since, and these; what others sent is dropped.

        Parameters
        ----------
        pids : the process of each rank that may send.
        count : files.
        """
        room = socket.CMSG_SPACE(CREDENTIALS.size) + socket.CMSG_SPACE(4 * count)
        while True:
            try:
                data, extras, flags, _ = self._socket.recvmsg(64, room, socket.MSG_CMSG_CLOEXEC)
            except BlockingIOError:
                return
            files, sender = _unpacked(extras)
            rank = int.from_bytes(data[SECRET:])
            ours = secrets.compare_digest(data[:SECRET], self._secret) and sender == (pids.get(rank), os.getuid())
            if ours and len(files) == count:
                yield rank, files
                continue
            for file in files:
                os.close(file)
            if ours and flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # the kernel had no number for them


def exchange_files(
    group: Any, rank: int, pids: list[int], files: Mapping[int, list[int]], timeout: float
) -> dict[int, list[int]]:
    """Hand files to other processes of this machine, and take as many of each. Every process of the group calls it.

    Parameters
    ----------
    group, rank : the process group, and which of its processes this is.
    pids : the process ids of all ranks.
    files : by rank, what to hand over; those who are given something give something, too.
    timeout : seconds after which it is given up.
    """
    if not files:
        share_json(None, group)
        return {}
    with private_folder() as folder, closing(Mailbox(folder)) as mailbox:
        addresses = share_json(mailbox.address, group)
        places = {peer: (_path(pids[peer], addresses[peer][0]), addresses[peer][1]) for peer in files}
        return _hand_over(mailbox, rank, {peer: pids[peer] for peer in files}, places, files, timeout)


def _hand_over(
    mailbox: Mailbox,
    rank: int,
    pids: Mapping[int, int],
    places: Mapping[int, tuple[str, str]],
    files: Mapping[int, list[int]],
    timeout: float,
) -> dict[int, list[int]]:
    """Send and take in turn: a mailbox holds few letters, and its owner may be sending as well."""
    deadline, unsent, taken = time.monotonic() + timeout, {*files}, dict[int, list[int]]()
    count = len(next(iter(files.values())))
    poll = select.poll()
    poll.register(mailbox, select.POLLIN)
    while True:
        gone = {peer for peer, pid in pids.items() if not os.path.exists(f"/proc/{pid}")}
        unsent -= {peer for peer in unsent if _sent(*places[peer], rank, files[peer])}
        taken.update(mailbox.taken(pids, count))
        missing = {*files} - {*taken} | unsent
        if not missing:
            return taken
        if gone & missing:
            raise RuntimeError(f"{_named(gone & missing)} of the group left before the doorbells were connected")
        left = deadline - time.monotonic()
        if left <= 0:
            raise RuntimeError(f"{_named(missing)} of the group did not come to the doorbells within {timeout:g} s")
        poll.poll(1e3 * min(left, RETRY if unsent else LOOK))


def _sent(place: str, secret: str, rank: int, files: list[int]) -> bool:
    """Whether the mailbox at that place was there and had room."""
    with _datagrams() as sender:
        try:
            sender.connect(place)
            socket.send_fds(sender, [bytes.fromhex(secret) + rank.to_bytes(8)], files)
        except OSError as error:
            if error.errno not in LATER:
                raise
            return False
    return True


def _unpacked(extras: list[tuple[int, int, bytes]]) -> tuple[list[int], tuple[int, int] | None]:
    """The files that came with a message, and the process and the user who sent it."""
    files: list[int] = []
    sender = None
    for level, kind, data in extras:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files += [number for (number,) in struct.iter_unpack("i", data[: len(data) // 4 * 4])]
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid, user, _ = CREDENTIALS.unpack(data)
            sender = pid, user
    return files, sender


def _datagrams() -> socket.socket:
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    return ours


def _path(pid: int, folder: int) -> str:
    return f"/proc/{pid}/fd/{folder}/{BELL}"


def _named(ranks: Collection[int]) -> str:
    return f"process{'es' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"
