"""Strangers at the doors of a run while it starts: garbage, silence, other users."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest
import torch
import torch.distributed as dist

from commeff.communicator import Transport
from commeff.communicator.wire.records import share_json
from commeff.communicator.wire.shared_memory import Doorbells
from commeff.experiments.run.crew import Fork, crew
from tests.owned import PATIENCE, fork, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pidfds")
STARTS = 20
MOST = 50  # connections of a stranger
NOBODY = 65534

Visit = Callable[[int], int]  # to a process; how many doors were knocked at


def files(pid: int) -> Iterator[tuple[Path, str]]:
    """The open files of a process, and what they are."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            yield path, os.readlink(path)


def without_sockets(pid: int) -> int:
    """The open files of a process but for sockets: gloo keeps connections that say nothing."""
    return sum(not what.startswith("socket:") for _, what in files(pid))


def listening(pid: int) -> list[int]:
    """The TCP ports at which a process listens."""
    own = {what[8:-1] for _, what in files(pid) if what.startswith("socket:[")}
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in table if row[3] == "0A" and row[9] in own]


class AtPorts:
    """Connects wherever a process listens, as any user of the machine may, says something or nothing, and stays."""

    def __init__(self, message: bytes) -> None:
        self.message = message
        self.held: list[socket.socket] = []

    def __call__(self, pid: int) -> int:
        before = len(self.held)
        for port in listening(pid) * (before < MOST):
            self.held.append(socket.create_connection(("127.0.0.1", port), 1.0))
            self.held[-1].sendall(self.message)
        return len(self.held) - before


def another_user(pid: int) -> int:
    """Tries the numbers of open files, which are pipes and shared memory, and may open none."""
    os.setuid(NOBODY)
    places = [f"/proc/{pid}/fd/{number}" for number in range(64)]
    for place in places:
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_NONBLOCK):
            with suppress(PermissionError, FileNotFoundError):
                os.open(place, flags)
                os._exit(0)  # he is in
    return len(places)


ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
VISITS: list[Any] = [pytest.param(another_user, marks=ROOT), AtPorts(b""), AtPorts(random.randbytes(64))]


def visit(how: Visit, pids: Sequence[int], log: IO[bytes]) -> None:
    """Knock until killed, and count."""
    while True:
        for pid in pids:
            with suppress(OSError):
                log.write(b"." * how(pid))
        time.sleep(0.001)


@pytest.mark.parametrize("how", VISITS, ids=["another user", "silent", "garbage"])
def test_strangers_change_nothing_while_a_run_starts(how: Visit, tmp_path: Path) -> None:
    log, go = tmp_path / "knocks", tmp_path / "go"

    def work(member: Fork) -> float:
        until(go.exists, "the strangers")
        with member.group(PATIENCE):
            pids = share_json(os.getpid())
            before = without_sockets(os.getpid())
            for start in range(STARTS):
                doorbells = Doorbells(None, member.rank, pids, {1 - member.rank}, PATIENCE)
                doorbells.ring(1 - member.rank, member.rank, start, 0)
                assert doorbells.expect(1 - member.rank).wait() == (1 - member.rank, start, 0)
                share_json(None)
                del doorbells
            assert without_sockets(os.getpid()) == before
            if not member.rank:
                until(lambda: log.stat().st_size, "somebody who knocks")
            shared = Transport(dist.group.WORLD, alone=False)._shared_memory
            assert shared is not None
            total = torch.tensor([member.rank + 1.0])
            dist.all_reduce(total)
            return float(total)

    with crew(2, work) as members, log.open("wb", buffering=0) as knocks:
        stranger = fork()
        if not stranger:
            try:
                visit(how, [pid for pid in members.pids if pid], knocks)
            finally:
                os._exit(1)
        try:
            go.touch()
            assert members.results() == [3.0, 3.0]
        finally:
            os.kill(stranger, signal.SIGKILL)
            assert os.waitstatus_to_exitcode(os.waitpid(stranger, 0)[1]) == -signal.SIGKILL, "he was there to the end"
