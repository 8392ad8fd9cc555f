"""Memory shared by processes: large messages arrive whole, blocks are used again, and nothing stays behind."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from commeff.communicator import Transport
from commeff.communicator.wire import shared_memory as shared
from tests.laws.processes import on_processes

LARGE = shared.LEAST // 8 + 1  # float64 numbers that go by shared memory
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has memfd_create")


def transport() -> Transport:
    return Transport(dist.group.WORLD, alone=False)


def ring_of_messages() -> list[float]:
    """Everybody sends ever other numbers to the right; gives the sums of what came, and the number of blocks used."""
    ours = transport()
    right, left = (ours.rank + 1) % ours.size, (ours.rank - 1) % ours.size
    found = []
    for step in range(20):
        given = torch.arange(LARGE, dtype=torch.float64) + 1000 * step + ours.rank
        came = torch.empty_like(given)
        came = ours.exchange("mix", {right: given}, {left: came})()[left]
        assert torch.equal(came, given - ours.rank + left)
        found.append(float(came[0]))
    ours.sum(torch.zeros(1))()  # everybody has read
    assert ours._shared_memory is not None
    return [len(ours._shared_memory._blocks), ours.sent["mix"] / given.nbytes, *found]


@pytest.mark.parametrize("n", [2, 3])
def test_messages_arrive_and_blocks_are_used_again(n: int) -> None:
    for rank, (blocks, sent, *found) in enumerate(on_processes(n, ring_of_messages)):
        assert found == [1000 * step + (rank - 1) % n for step in range(20)]
        assert blocks <= 3, "a block that has been read is free again"
        assert sent == 20, "shared bytes count like those on the wire"


def test_messages_may_overtake_nobody_and_wait_for_nobody() -> None:
    """Many are posted before the first is waited for, large and small ones mixed."""

    def crowd() -> bool:
        ours, waits, buffers = transport(), [], []
        peer = 1 - ours.rank
        for i in range(12):
            size = LARGE if i % 3 else 5
            buffers.append(torch.empty(size, dtype=torch.float64))
            waits.append(ours.exchange("mix", {peer: torch.full((size,), float(i)).double()}, {peer: buffers[-1]}))
        return all(bool((waits[i]()[peer] == i).all()) for i in reversed(range(12)))

    assert on_processes(2, crowd) == [True, True]


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_everybody_gets_the_same_sum_to_the_last_bit(n: int) -> None:
    def numbers(rank: int) -> torch.Tensor:
        return torch.rand(n * LARGE + 3, generator=torch.Generator().manual_seed(rank)).double()

    def total() -> torch.Tensor:
        ours = transport()
        found = ours.sum(numbers(ours.rank))()
        assert ours._shared_memory is not None
        assert ours._shared_memory._blocks, "it went another way"
        return found

    first, *others = on_processes(n, total)
    expected = sum(numbers(rank) for rank in range(n))
    assert torch.allclose(first, expected, rtol=0, atol=1e-12)
    assert all(torch.equal(first, other) for other in others)


def test_it_can_be_switched_off_by_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    def near() -> list[int]:
        if dist.get_rank() == 1:
            os.environ[shared.SWITCH] = "0"
        memory = transport()._shared_memory
        assert memory is not None
        return sorted(memory.near)

    assert on_processes(3, near) == [[2], [], [0]]


def test_what_is_dropped_gives_its_memory_back() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def grown() -> tuple[int, int]:
        ring_of_messages()
        gc.collect()
        before = open_files()
        for _ in range(5):
            ring_of_messages()
        gc.collect()
        return before, open_files()

    for before, after in on_processes(2, grown):
        assert after <= before
