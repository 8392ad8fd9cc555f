"""How processes of one machine tell each other that something lies in shared memory.

A message through gloo passes two more threads, which have to find a free core first. Here what is said goes through a
pipe, and who waits is woken at an eventfd: a reader who slept at the pipe itself would be moved to the writer's core.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import torch.distributed as dist

RING = struct.Struct("3q")


class Ring:
    """One ring of a peer's bell, which says three numbers."""

    def __init__(self, bells: Bells, peer: int) -> None:
        self._bells, self._peer = bells, peer
        self.said: tuple[int, ...] | None = None

    def wait(self) -> tuple[int, ...]:
        """What it says, once it has come; those that the peer rang before come before it."""
        while self.said is None:
            self._bells.hear(self._peer)
        return self.said


class Bells:
    """The bells between this process and those `near`, which all hang theirs at the same time.

    Parameters
    ----------
    group : the processes; rank : ours; pids : of all of them.  near : the ranks that share our machine.
    timeout : seconds after which we stop waiting for a ring.
    """

    def __init__(self, group: Any, rank: int, pids: list[int], near: Collection[int], timeout: float) -> None:
        self._timeout = timeout
        self._expected: dict[int, deque[Ring]] = {peer: deque() for peer in near}
        self._said: dict[int, deque[tuple[int, ...]]] = {peer: deque() for peer in near}
        self._in: dict[int, int] = {}
        self._out: dict[int, int] = {}
        self._wakes: dict[int, int] = {}
        doors: list[Any] = [None] * len(pids)
        if not near:
            dist.all_gather_object(doors, None, group=group)
            return
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        with _datagrams() as door:
            door.bind("")  # the kernel finds a name
            dist.all_gather_object(doors, door.getsockname(), group=group)
            for peer in near:
                self._in[peer], end = os.pipe2(os.O_NONBLOCK)
                with _datagrams() as way:
                    way.connect(doors[peer])
                    socket.send_fds(way, [rank.to_bytes(8)], [end, self._wake])
                os.close(end)  # so that the pipe ends with the process at its other end
            for _ in near:
                sender, ends, _, _ = socket.recv_fds(door, 8, 2)
                self._out[int.from_bytes(sender)], self._wakes[int.from_bytes(sender)] = ends
        self._lives = {peer: os.pidfd_open(pids[peer]) for peer in near}
        tables = (self._in, self._out, self._wakes, self._lives)
        weakref.finalize(self, _close, [self._wake, *(end for ends in tables for end in ends.values())])

    def ring(self, peer: int, *numbers: int) -> None:
        """Tell a peer three numbers. Who has left does not hear it."""
        until = time.monotonic() + self._timeout
        with suppress(BrokenPipeError):
            while not self._written(peer, numbers):
                if time.monotonic() > until:
                    raise RuntimeError(f"process {peer} of the group heard nothing for {self._timeout:g} s")
                for other in self._in:  # who is as full may write again
                    self._listen(other)
                time.sleep(1e-4)
            os.eventfd_write(self._wakes[peer], 1)

    def _written(self, peer: int, numbers: tuple[int, ...]) -> bool:
        """Whether the pipe had room."""
        try:
            return os.write(self._out[peer], RING.pack(*numbers)) > 0
        except BlockingIOError:
            return False

    def expect(self, peer: int) -> Ring:
        """The peer's next ring that nobody expects yet."""
        ring = Ring(self, peer)
        self._expected[peer].append(ring)
        return ring

    def hear(self, peer: int) -> None:
        """Wait for the first ring that is expected of a peer."""
        ended = self._listen(peer)
        waiting = select.poll()
        for end in (self._wake, self._lives[peer]):
            waiting.register(end, select.POLLIN)
        while not self._said[peer]:
            if ended:
                raise RuntimeError(f"process {peer} of the group has left while others wait for it")
            awake = dict(waiting.poll(1e3 * self._timeout))
            if not awake:
                raise RuntimeError(f"nothing came from process {peer} of the group within {self._timeout:g} s")
            if self._wake in awake:
                os.eventfd_read(self._wake)
            ended = self._listen(peer) or self._lives[peer] in awake
        self._expected[peer].popleft().said = self._said[peer].popleft()

    def _listen(self, peer: int) -> bool:
        """Take what the peer has said; whether it will say nothing more."""
        try:
            heard = os.read(self._in[peer], 1000 * RING.size)
        except BlockingIOError:
            return False
        self._said[peer].extend(RING.iter_unpack(heard))
        return not heard


def _datagrams() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def _close(ends: list[int]) -> None:
    for end in ends:
        os.close(end)
