"""What is posted: buffers to and from peers, over the network or by memory that both share, and sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from commeff.communicator.wire.doorbell import Notification
from commeff.communicator.wire.shared_memory import SharedMemory


class Exchange:
    """One buffer to each peer in `outgoing`, one from each in `incoming`.

    Where memory is shared, the buffer itself stays, and the peer's doorbell is rung.

    Attributes
    ----------
    works : what was posted on the network.  posted : whether everything was.
    near : whether all of it is shared, so that nothing travels.
    """

    def __init__(self, outgoing: dict[int, Tensor], incoming: dict[int, Tensor], memory: SharedMemory | None) -> None:
        self.outgoing, self.incoming, self._memory = outgoing, incoming, memory
        self._expected: dict[int, Notification] = {}
        self._read: list[Callable[[], None]] = []
        self.works: list[Any] = []
        self.posted = False
        self.near = all(self._shared(p, buffers) for buffers in (incoming, outgoing) for p in buffers)

    def _shared(self, peer: int, buffers: dict[int, Tensor]) -> bool:
        return self._memory is not None and self._memory.reaches(buffers[peer], [peer])

    def receives(self) -> Iterator[tuple[int, Tensor]]:
        """What is received from whom over the network."""
        yield from ((p, buffer) for p, buffer in self.incoming.items() if not self._shared(p, self.incoming))

    def sends(self) -> Iterator[tuple[int, Tensor]]:
        """What is sent to whom over the network."""
        yield from ((p, buffer) for p, buffer in self.outgoing.items() if not self._shared(p, self.outgoing))

    def share(self) -> None:
        """Put what goes to processes nearby into memory, one buffer for several peers once, and expect what comes."""
        if self._memory is None:
            return
        self._expected = {p: self._memory.expect(p) for p in self.incoming if self._shared(p, self.incoming)}
        readers: dict[tuple[int, int], list[int]] = {}
        for peer in self.outgoing:
            if self._shared(peer, self.outgoing):
                buffer = self.outgoing[peer]
                readers.setdefault((buffer.data_ptr(), buffer.nbytes), []).append(peer)
        for peers in readers.values():
            self._memory.put(self.outgoing[peers[0]], peers)

    def wait(self) -> None:
        """Until everything has come and gone."""
        for work in self.works:
            work.wait()
        for notification in self._expected.values():
            notification.wait()

    def arrived(self, peer: int) -> Tensor:
        """What has come from a peer: the buffer, or the peer's memory until `release`."""
        if peer not in self._expected:
            return self.incoming[peer]
        assert self._memory is not None
        view, read = self._memory.take(peer, self._expected[peer], self.incoming[peer])
        self._read.append(read)
        return view

    def release(self) -> None:
        """Say that everything has been read."""
        for read in self._read:
            read()
        self._read.clear()


class SharedSum:
    """A sum by shared memory: everybody adds up one part of all tensors, in the order of ranks, and the sums go round.
    All get the same to the last bit.

    Attributes
    ----------
    terms : everybody's parts.  sums : what has been added up, once it has.
    """

    def __init__(self, tensor: Tensor, rank: int, size: int, memory: SharedMemory) -> None:
        self._parts, self._rank, self._memory = tensor.view(-1).tensor_split(size), rank, memory
        self._own, self._peers = self._parts[rank], [peer for peer in range(size) if peer != rank]
        outgoing = {peer: self._parts[peer] for peer in self._peers}
        self.terms = Exchange(outgoing, {peer: torch.empty_like(self._own) for peer in self._peers}, memory)
        self.sums: Exchange

    def add(self) -> Exchange:
        """The sums, to be posted. All terms have come."""
        before = [self.terms.arrived(peer) for peer in self._peers[: self._rank]]
        if before:
            self._own.add_(before[0] if len(before) == 1 else sum(before[1:], before[0]))
        for peer in self._peers[self._rank :]:
            self._own.add_(self.terms.arrived(peer))
        self.terms.release()
        incoming = {peer: self._parts[peer] for peer in self._peers}
        self.sums = Exchange(dict.fromkeys(self._peers, self._own), incoming, self._memory)
        return self.sums

    def finish(self) -> None:
        """All sums, which have come, into the tensor."""
        for peer in self._peers:
            self._parts[peer].copy_(self.sums.arrived(peer))
        self.sums.release()


class Joint:
    """Tensors of one kind that are summed in one operation.

    Attributes
    ----------
    posted : whether it has begun.
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._flat = torch.empty(0)
        self._wait: Callable[[], None] | None = None
        self.posted = False

    @property
    def nbytes(self) -> int:
        """Of all of them."""
        return sum(tensor.nbytes for tensor in self._tensors)

    def add(self, tensor: Tensor) -> slice:
        """Its place among the others."""
        start = sum(map(len, self._tensors))
        self._tensors.append(tensor.reshape(-1))
        return slice(start, start + tensor.numel())

    def post(self, total: Callable[[Tensor], Callable[[], None]]) -> None:
        """Begin the sum of all by `total`, which gives what waits for it."""
        self._flat, self.posted = torch.cat(self._tensors), True
        self._wait = total(self._flat)

    def result(self) -> Tensor:
        """All of them, flat, once their sum is there."""
        if self._wait is not None:
            self._wait()
            self._wait = None
        return self._flat
