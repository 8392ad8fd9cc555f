"""How processes of one machine tell each other that something lies in shared memory.

A message through gloo passes two more threads, which have to find a free core first. Here the numbers of a notification
go through a pipe, and its reader is woken at an eventfd: a reader who slept at the pipe itself would be moved to the
writer's core.
"""

from __future__ import annotations

import os
import select
import struct
import time
import weakref
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from commeff.communicator.wire.mailbox import exchange_files

FORMAT = struct.Struct("3q")

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

    Every process of the group must create its doorbells at the same time: it takes one collective call.

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
        self._out: dict[int, int] = {}
        self._wake_fds: dict[int, int] = {}
        if not near:
            exchange_files(group, rank, pids, {}, timeout)
            return
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK)
        ends: dict[int, int] = {}
        for peer in near:
            self._in[peer], ends[peer] = os.pipe2(os.O_NONBLOCK)
        given = {peer: [end, self._wake_fd] for peer, end in ends.items()}
        for peer, (pipe, wake_fd) in exchange_files(group, rank, pids, given, timeout).items():
            self._out[peer], self._wake_fds[peer] = pipe, wake_fd
        for end in ends.values():
            os.close(end)  # so that the pipe ends with the process at its other end
        self._pid_fds = {peer: os.pidfd_open(pids[peer]) for peer in near}
        own = [self._wake_fd, *self._in.values(), *self._pid_fds.values()]
        weakref.finalize(self, _close, own, list(self._out.values()), list(self._wake_fds.values()))

    def ring(self, peer: int, *numbers: int) -> None:
        """Send a peer three numbers. To a process that has left, nothing is sent."""
        until = time.monotonic() + self._timeout
        with suppress(BrokenPipeError):
            while not self._write(peer, numbers):
                if time.monotonic() > until:
                    raise RuntimeError(f"process {peer} of the group read nothing for {self._timeout:g} s")
                for other in self._in:  # a peer whose own pipe is full may write again, and then read
                    self._read(other)
                time.sleep(1e-4)
            os.eventfd_write(self._wake_fds[peer], 1)

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
        ended = self._read(peer)
        poll = select.poll()
        for fd in (self._wake_fd, self._pid_fds[peer]):
            poll.register(fd, select.POLLIN)
        while not self._arrived[peer]:
            if ended:
                raise RuntimeError(f"process {peer} of the group has left while others wait for it")
            events = dict(poll.poll(1e3 * self._timeout))
            if not events:
                raise RuntimeError(f"nothing came from process {peer} of the group within {self._timeout:g} s")
            if self._wake_fd in events:
                os.eventfd_read(self._wake_fd)
            ended = self._read(peer) or self._pid_fds[peer] in events
        self._expected[peer].popleft().numbers = self._arrived[peer].popleft()

    def _read(self, peer: int) -> bool:
        """Take what the peer has sent; True if it will send nothing more."""
        try:
            data = os.read(self._in[peer], 1000 * FORMAT.size)
        except BlockingIOError:
            return False
        self._arrived[peer].extend(FORMAT.iter_unpack(data))
        return not data


def _close(own: list[int], pipes: list[int], wake_fds: list[int]) -> None:
    """End the pipes to the peers, and wake those who wait, so that they see it."""
    for fd in (*own, *pipes):
        os.close(fd)
    for fd in wake_fds:
        os.eventfd_write(fd, 1)
        os.close(fd)
