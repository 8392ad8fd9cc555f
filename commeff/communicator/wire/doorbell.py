"""How processes of one machine tell each other that something lies in shared memory.

A message through gloo passes two more threads, which have to find a free core first. Here a notification goes through a
pipe. Its writer opens it where the kernel shows the open files of a process, which it does to processes of its user
alone. A reader looks at the pipe at short intervals: one that sleeps at it is moved to the writer's core, which made a
step of psgd on two cores a third slower.
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

from commeff.communicator.wire.records import share_json

FORMAT = struct.Struct("3q")
SHORTEST_PAUSE, LONGEST_PAUSE = 5e-5, 1e-3  # seconds between two looks at a pipe

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
        weakref.finalize(self, _close, [*self._in.values(), *self._out.values(), *self._pid_fds.values()])
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


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)
