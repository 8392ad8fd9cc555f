"""How processes of one machine wake each other."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from commeff.communicator.wire.records import share_json
from commeff.communicator.wire.shared_memory import Doorbells
from tests.laws.processes import on_processes
from tests.owned import PATIENCE, fork, until


def create(timeout: float = PATIENCE) -> tuple[Doorbells, int]:
    """The doorbells of a group of processes of this machine, and our rank."""
    rank, pids = dist.get_rank(), share_json(os.getpid())
    return Doorbells(None, rank, pids, set(range(len(pids))) - {rank}, timeout), rank


def test_notifications_arrive_in_the_order_in_which_they_were_sent() -> None:
    def run() -> list[tuple[int, ...]]:
        doorbells, rank = create()
        peers = [peer for peer in range(3) if peer != rank]
        for peer in peers:
            doorbells.ring(peer, rank, peer, 1)
            doorbells.ring(peer, rank, peer, 2)
        first, second = ({peer: doorbells.expect(peer) for peer in peers} for _ in range(2))
        return [notification.wait() for peer in peers for notification in (second[peer], first[peer])]

    for rank, arrived in enumerate(on_processes(3, run)):
        assert arrived == [(peer, rank, i) for peer in range(3) if peer != rank for i in (2, 1)]


def test_who_rings_more_often_than_a_pipe_holds_reads_meanwhile() -> None:
    def run() -> int:
        doorbells, rank = create()
        for i in range(10_000):
            doorbells.ring(1 - rank, i, 0, 0)
        return sum(doorbells.expect(1 - rank).wait() == (i, 0, 0) for i in range(10_000))

    assert on_processes(2, run) == [10_000] * 2


def test_waiting_for_a_peer_that_never_rings_ends() -> None:
    def run() -> str:
        doorbells, rank = create(timeout=0.5)
        try:
            doorbells.expect(1 - rank).wait()
        except RuntimeError as error:
            return str(error)
        return "arrived"

    assert on_processes(2, run) == [f"nothing came from process {peer} of the group within 0.5 s" for peer in (1, 0)]


@pytest.mark.parametrize(
    "how", ["leaves", "leaves while it is waited for", "is killed", "is killed while a child of it lives"]
)
def test_it_is_noticed_when_a_peer_has_gone(how: str, tmp_path: Path) -> None:
    def run() -> None:
        doorbells, rank = create()
        if rank:
            doorbells.ring(0, 1, 2, 3)
            if how.startswith("leaves"):
                time.sleep(0.5 * how.endswith("for"))
                del doorbells
                return
            if how.endswith("lives") and not fork():
                until((tmp_path / "noticed").exists, "process 0 to notice")
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
        assert doorbells.expect(1).wait() == (1, 2, 3), "what it sent before arrives"
        with pytest.raises(RuntimeError, match="process 1 of the group has left"):
            doorbells.expect(1).wait()
        (tmp_path / "noticed").touch()

    if how.startswith("leaves"):
        on_processes(2, run)
    else:
        with pytest.raises((RuntimeError, AssertionError)):
            on_processes(2, run)
    assert (tmp_path / "noticed").exists()


def test_to_who_has_left_nothing_is_sent() -> None:
    def run() -> int:
        doorbells, rank = create()
        if rank:
            del doorbells
            return 0
        with pytest.raises(RuntimeError, match="process 1 of the group has left"):
            doorbells.expect(1).wait()
        doorbells.ring(1, 1, 2, 3)
        return 1

    assert on_processes(2, run) == [1, 0]


def test_a_process_with_nobody_near_takes_part() -> None:
    def run() -> int:
        before = len(os.listdir("/proc/self/fd"))
        doorbells = Doorbells(None, dist.get_rank(), [os.getpid()] * 2, set(), 1.0)
        return len(os.listdir("/proc/self/fd")) - before + len(vars(doorbells)["_in"])

    assert on_processes(2, run) == [0, 0]
