"""Memory shared by the processes of one machine: what stays there need not go through the network's loopback.

A sender copies its bytes into a block of memory of its own and rings the receivers' doorbells, who read the block. Each
writes into the block's head when it has read it, so that the sender knows when the block is free again.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from commeff.communicator.wire.doorbell import Doorbells, Notification
from commeff.communicator.wire.group import timeout_of
from commeff.communicator.wire.records import share_json

LEAST = 2**9  # bytes below which a message is sent like those to other machines
SWITCH = "COMMEFF_SHARED_MEMORY"  # the environment variable that switches it off: 0


@dataclass
class SharedBlock:
    """Memory that one process writes and others read: (size,) int64 of who has read which message, and the bytes."""

    memory: mmap.mmap
    fd: int
    size: int
    message: int = 0
    readers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        everything = torch.frombuffer(self.memory, dtype=torch.uint8)
        self.head, self.body = everything[: 8 * self.size].view(torch.int64), everything[8 * self.size :]

    @property
    def free(self) -> bool:
        """Whether everybody has read the last message."""
        return all(int(self.head[reader]) == self.message for reader in self.readers)


class SharedMemory:
    """The blocks of a group of processes.

    Attributes
    ----------
    near : set of int
        The ranks that share this machine's memory, without our own.
    """

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._blocks: list[SharedBlock] = []
        weakref.finalize(self, _close, self._blocks)
        self._peer_blocks: dict[tuple[int, int], SharedBlock] = {}
        probes = _probes() if os.environ.get(SWITCH) != "0" else []
        facts = share_json([_machine(), os.getpid(), probes], group)
        self._pids = [pid for _, pid, _ in facts]
        same = [r for r, (machine, _, files) in enumerate(facts) if machine == _machine() and files and probes]
        readable = [r for r in same if _opens(self._pids[r], facts[r][2])]
        views = share_json(readable, group)
        for file in probes:
            os.close(file)  # everybody has tried it
        self.near = {r for r in readable if rank in views[r] and r != rank}
        self._doorbells = Doorbells(group, rank, self._pids, self.near, timeout_of(group).total_seconds())

    def reaches(self, tensor: Tensor, peers: Iterable[int]) -> bool:
        """Whether a tensor goes to all of these peers by shared memory."""
        return tensor.nbytes >= LEAST and all(peer in self.near or peer == self.rank for peer in peers)

    def put(self, rows: Tensor, readers: Iterable[int]) -> None:
        """Copy the tensor into a free block, and ring the readers' doorbells."""
        payload = _bytes(rows)
        fitting = [block for block in self._blocks if len(block.body) >= len(payload) and block.free]
        block = min(fitting, key=lambda block: len(block.body), default=None)
        if block is None:
            length = 8 * self.size + len(payload)
            fd = _new_memory(length)
            block = SharedBlock(mmap.mmap(fd, length), fd, self.size)
            self._blocks.append(block)
        block.message, block.readers = block.message + 1, tuple(readers)
        block.body[: len(payload)] = payload
        for reader in block.readers:
            self._doorbells.ring(reader, block.fd, len(block.memory), block.message)

    def expect(self, peer: int) -> Notification:
        """What the peer puts next."""
        return self._doorbells.expect(peer)

    def take(self, peer: int, notification: Notification, like: Tensor) -> tuple[Tensor, Callable[[], None]]:
        """What the peer has put, as a tensor like the given one, and what to call when it has been read."""
        fd, length, message = notification.wait()
        if (peer, fd) not in self._peer_blocks:
            opened = os.open(f"/proc/{self._pids[peer]}/fd/{fd}", os.O_RDWR)
            self._peer_blocks[peer, fd] = SharedBlock(mmap.mmap(opened, length), fd, self.size)
            os.close(opened)  # the map holds it
        block = self._peer_blocks[peer, fd]

        def read() -> None:
            block.head[self.rank] = message

        return block.body[: like.numel() * like.element_size()].view(like.dtype).view(like.shape), read


def _close(blocks: list[SharedBlock]) -> None:
    """Give back what everybody has read; what somebody may still look for stays until the process ends."""
    for block in blocks:
        if block.free:
            os.close(block.fd)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _probes() -> list[int]:
    """Memory and a pipe, for others to try whether they can open them; none where the system, or a sandbox, lacks what
    sharing takes.
    """
    if sys.platform != "linux":
        return []
    try:
        os.close(os.pidfd_open(os.getpid()))
        pipe, end = os.pipe2(os.O_CLOEXEC)
        os.close(end)
        return [_new_memory(1), pipe]
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise
        return []


def _new_memory(length: int) -> int:
    """A file without a name, for this user only, which is gone with the last process that has it open."""
    fd = os.memfd_create("commeff")
    os.fchmod(fd, 0o600)
    os.ftruncate(fd, length)
    return fd


def _machine() -> list[str]:
    """What processes have in common that see each other's memory, and whose network goes nowhere."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    spaces = (f"/proc/self/ns/{kind}" for kind in ("pid", "net"))
    return [boot.read_text(), *map(os.readlink, spaces)] if boot.exists() else []


def _opens(pid: int, files: list[int]) -> bool:
    try:
        for file in files:
            os.close(os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR))
    except OSError:
        return False
    return True
