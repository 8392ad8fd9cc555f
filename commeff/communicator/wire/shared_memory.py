"""Memory shared by the processes of one machine: what stays there need not go through the network's loopback.

A sender copies its bytes into a block of memory of its own and rings the receivers' doorbells, who read the block. Each
writes into the block's head when it has read it, so that the sender knows when the block is free again.

How processes tell each other that something lies there: a message through gloo passes two more threads, which have to
find a free core first. Here a notification goes through a pipe. Its writer opens it where the kernel shows the open
files of a process, which it does to processes of its user alone. A reader looks at the pipe at short intervals: one
that sleeps at it is moved to the writer's core, which made a step of psgd on two cores a third slower.

Memory by name (`multiprocessing.shared_memory`) is as fast and was not taken: a name outlives processes that are
killed, and containers allow names 64 MB.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import struct
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from commeff.communicator.wire.group import timeout_of
from commeff.communicator.wire.records import share_json

FORMAT = struct.Struct("3q")
SHORTEST_PAUSE, LONGEST_PAUSE = 5e-5, 1e-3  # seconds between two looks at a pipe
LEAST = 2**9  # bytes below which a message is sent like those to other machines
SWITCH = "COMMEFF_SHARED_MEMORY"  # the environment variable that switches it off: 0

Numbers = tuple[int, ...]


class Notification:
    """One notification from a peer: three numbers, which may still be under way."""

    def __init__(self, doorbells: Doorbells, peer: int) -> None:
        self._doorbells, self._peer = doorbells, peer
        self.numbers: Numbers | None = None

    def wait(self) -> Numbers:
        """The three numbers, once they are here; a peer's notifications arrive in the order in which it sent them."""
        while self.numbers is None:
            self._doorbells.receive(self._peer)
        return self.numbers


class Doorbells:
    """The doorbells between this process and others of its machine.

    Every process of the group must create its doorbells at the same time: it takes two collective calls.

    Parameters
    ----------
    group : Any
        The process group.
    rank : int
        The rank of this process in it.
    pids : list of int
        The process ids of all ranks.
    near : collection of int
        The other ranks that share this machine.
    timeout : float
        Seconds after which waiting for a notification, or for room to send one, is given up.
    """

    def __init__(self, group: Any, rank: int, pids: list[int], near: Collection[int], timeout: float) -> None:
        self._timeout = timeout
        self._expected: dict[int, deque[Notification]] = {peer: deque() for peer in near}
        self._arrived: dict[int, deque[Numbers]] = {peer: deque() for peer in near}
        self._in: dict[int, int] = {}
        for peer in near:
            self._in[peer], end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            os.close(end)  # the peer opens its own, with which the pipe ends
        pipes = share_json([self._in.get(peer) for peer in range(len(pids))], group)
        self._out = {
            peer: os.open(f"/proc/{pids[peer]}/fd/{pipes[peer][rank]}", os.O_WRONLY | os.O_NONBLOCK) for peer in near
        }
        self._pid_fds = {peer: os.pidfd_open(pids[peer]) for peer in near}
        weakref.finalize(self, _close_files, [*self._in.values(), *self._out.values(), *self._pid_fds.values()])
        share_json(None, group)  # a pipe without a writer looks like one whose writer has left

    def ring(self, peer: int, *numbers: int) -> None:
        """Send a peer three numbers. To a process that has left, nothing is sent."""
        until = time.monotonic() + self._timeout
        with suppress(BrokenPipeError):
            while not self._write(peer, numbers):
                if time.monotonic() > until:
                    raise RuntimeError(f"process {peer} of the group read nothing for {self._timeout:g} s")
                for other in self._in:  # a peer whose own pipe is full may write again, and then read
                    self._read(other)
                time.sleep(SHORTEST_PAUSE)

    def _write(self, peer: int, numbers: Numbers) -> bool:
        """Whether the pipe had room."""
        try:
            return os.write(self._out[peer], FORMAT.pack(*numbers)) > 0
        except BlockingIOError:
            return False

    def expect(self, peer: int) -> Notification:
        """The peer's next notification that nobody expects yet."""
        notification = Notification(self, peer)
        self._expected[peer].append(notification)
        return notification

    def receive(self, peer: int) -> None:
        """Wait for the first notification that is expected of a peer."""
        end = select.poll()
        end.register(self._pid_fds[peer], select.POLLIN)  # a child that lives on keeps the pipe of a killed peer open
        begin = time.monotonic()
        while True:
            ended = bool(end.poll(0))
            ended |= self._read(peer)
            if self._arrived[peer]:
                break
            if ended:
                raise RuntimeError(f"process {peer} of the group has left while others wait for it")
            waited = time.monotonic() - begin
            if waited > self._timeout:
                raise RuntimeError(f"nothing came from process {peer} of the group within {self._timeout:g} s")
            time.sleep(min(max(waited / 20, SHORTEST_PAUSE), LONGEST_PAUSE))
        self._expected[peer].popleft().numbers = self._arrived[peer].popleft()

    def _read(self, peer: int) -> bool:
        """Take what the peer has sent; True if it will send nothing more."""
        try:
            data = os.read(self._in[peer], 1000 * FORMAT.size)
        except BlockingIOError:
            return False
        self._arrived[peer].extend(FORMAT.iter_unpack(data))
        return not data


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
    doorbells : Doorbells
        Between us and these, which say what each puts next.
    """

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._blocks: list[SharedBlock] = []
        weakref.finalize(self, _close_blocks, self._blocks)
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
        self.doorbells = Doorbells(group, rank, self._pids, self.near, timeout_of(group).total_seconds())

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
            self.doorbells.ring(reader, block.fd, len(block.memory), block.message)

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


def _close_files(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _close_blocks(blocks: list[SharedBlock]) -> None:
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
