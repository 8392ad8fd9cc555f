"""A process group that needs more open files than it may have says so; transports come and go in it."""

from __future__ import annotations

import os
import resource

import pytest
import torch
import torch.distributed as dist

from commeff.communicator import Transport
from commeff.communicator.wire.group import enough_files
from tests.laws.processes import on_processes


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


def test_a_transport_may_go_with_a_message_under_way() -> None:
    def run() -> float:
        for _ in range(5):
            transport, other = Transport(dist.group.WORLD, alone=False), 1 - dist.get_rank()
            transport.exchange("mix", {other: torch.ones(2)}, {other: torch.zeros(2)})
            del transport
        transport = Transport(dist.group.WORLD, alone=False)
        for _ in range(20):
            transport.exchange("mix", {other: torch.ones(2)}, {other: torch.zeros(2)})()
        assert len(transport._works) <= 2, "what has arrived is let go"
        last = torch.full((1,), float(other))
        transport.broadcast(last)
        return float(last)

    assert on_processes(2, run) == [1.0, 1.0]
