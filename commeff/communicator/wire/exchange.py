"""What is posted: buffers to and from peers, over the network or by memory that both share."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from commeff.communicator.wire.doorbell import Notification
from commeff.communicator.wire.shared_memory import SharedMemory


class WireOperation(ABC):  # noqa: B024
    """What all processes post in the same order.

    Attributes
    ----------
    posted : bool
        Whether it is under way.
    near : bool
        Whether all of it goes by shared memory, so that nothing travels.
    """

    posted = False
    near = False

    def exchanges(self) -> list[Exchange]:
        """What of it goes from peer to peer."""
        return []

    def post(self, group: Any) -> None:
        """Begin what is left, over the network."""
        self.posted = True


class Exchange(WireOperation):
    """One buffer to each peer in `outgoing`, one from each in `incoming`.

    Where memory is shared, the buffer itself stays, and the peer's doorbell is rung.

    Attributes
    ----------
    works : list
        What was posted on the network.
    """

    def __init__(self, outgoing: dict[int, Tensor], incoming: dict[int, Tensor], memory: SharedMemory | None) -> None:
        self.outgoing, self.incoming, self._shared_memory = outgoing, incoming, memory
        self._expected: dict[int, Notification] = {}
        self._read: list[Callable[[], None]] = []
        self.works: list[Any] = []
        self.near = all(self._shared(p, buffers) for buffers in (incoming, outgoing) for p in buffers)

    def _shared(self, peer: int, buffers: dict[int, Tensor]) -> bool:
        return self._shared_memory is not None and self._shared_memory.reaches(buffers[peer], [peer])

    def exchanges(self) -> list[Exchange]:
        return [self]

    def receives(self) -> Iterator[tuple[int, Tensor]]:
        """What is received from whom over the network."""
        yield from ((p, buffer) for p, buffer in self.incoming.items() if not self._shared(p, self.incoming))

    def sends(self) -> Iterator[tuple[int, Tensor]]:
        """What is sent to whom over the network."""
        yield from ((p, buffer) for p, buffer in self.outgoing.items() if not self._shared(p, self.outgoing))

    def share(self) -> None:
        """Put what goes to processes nearby into memory, one buffer for several peers once, and expect what comes."""
        if self._shared_memory is None:
            return
        self._expected = {p: self._shared_memory.expect(p) for p in self.incoming if self._shared(p, self.incoming)}
        readers: dict[tuple[int, int], list[int]] = {}
        for peer in self.outgoing:
            if self._shared(peer, self.outgoing):
                buffer = self.outgoing[peer]
                readers.setdefault((buffer.data_ptr(), buffer.nbytes), []).append(peer)
        for peers in readers.values():
            self._shared_memory.put(self.outgoing[peers[0]], peers)

    def wait(self) -> None:
        """Until everything has arrived and left."""
        for work in self.works:
            work.wait()
        for notification in self._expected.values():
            notification.wait()

    def arrived(self, peer: int) -> Tensor:
        """What has arrived from a peer: the buffer, or the peer's memory until `release`."""
        if peer not in self._expected:
            return self.incoming[peer]
        assert self._shared_memory is not None
        view, read = self._shared_memory.take(peer, self._expected[peer], self.incoming[peer])
        self._read.append(read)
        return view

    def release(self) -> None:
        """Tell the peers that everything has been read."""
        for read in self._read:
            read()
        self._read.clear()
