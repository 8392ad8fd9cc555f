"""What is posted: buffers to and from peers, over the network or by memory that both share; and sums over all
processes, by the network, by memory that all share, and of many small tensors at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from commeff.communicator.wire.shared_memory import Notification, SharedMemory


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

    def exchanges(self) -> list[Letters]:
        """What of it goes from peer to peer."""
        return []

    def post(self, group: Any) -> None:
        """Begin what is left, over the network."""
        self.posted = True


class Letters(WireOperation):
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

    def exchanges(self) -> list[Letters]:
        return [self]

    def receives(self) -> Iterator[tuple[int, Tensor]]:
        """The tensors received over the network, by sender."""
        yield from ((p, buffer) for p, buffer in self.incoming.items() if not self._shared(p, self.incoming))

    def sends(self) -> Iterator[tuple[int, Tensor]]:
        """The tensors sent over the network, by receiver."""
        yield from ((p, buffer) for p, buffer in self.outgoing.items() if not self._shared(p, self.outgoing))

    def share(self) -> None:
        """Put what goes to processes nearby into memory, one buffer for several peers once, and expect what comes."""
        if self._shared_memory is None:
            return
        expect = self._shared_memory.doorbells.expect
        self._expected = {p: expect(p) for p in self.incoming if self._shared(p, self.incoming)}
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
        """The tensor that has arrived from a peer: the buffer, or the peer's memory until `release`."""
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


class InPlaceSum(WireOperation):
    """The sum of everybody's tensor, in place.

    Attributes
    ----------
    finished : bool
        Whether the sum is in the tensor.
    """

    finished = False

    @abstractmethod
    def wait(self) -> None:
        """Until what this process needs has arrived."""

    def finish(self) -> None:
        """Put what has arrived into the tensor."""
        self.finished = True


class NetworkSum(InPlaceSum):
    """By the all-reduce of the process group."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._work: Any = None

    def post(self, group: Any) -> None:
        self._work = dist.all_reduce(self._tensor, group=group, async_op=True)
        super().post(group)

    def wait(self) -> None:
        self._work.wait()


class SharedSum(InPlaceSum):
    """By shared memory: everybody adds up one part of all tensors, in the order of ranks, and the sums go round. All
    get the same to the last bit.

    Attributes
    ----------
    terms : Letters
        Everybody's parts, which are posted first.
    sums : Letters
        What has been added up, which is posted then.
    """

    def __init__(self, tensor: Tensor, rank: int, size: int, shared_memory: SharedMemory) -> None:
        self._parts, self._rank, self._shared_memory = tensor.view(-1).tensor_split(size), rank, shared_memory
        self._own_part, self._peers = self._parts[rank], [peer for peer in range(size) if peer != rank]
        outgoing, like = {peer: self._parts[peer] for peer in self._peers}, dict.fromkeys(self._peers, self._own_part)
        self.terms = Letters(outgoing, like, shared_memory)  # whose terms are read where they lie
        self.near = self.terms.near
        self.sums: Letters

    def exchanges(self) -> list[Letters]:
        return [self.terms]

    def add(self) -> Letters:
        """The sums, to be posted. All terms have arrived."""
        before = [self.terms.arrived(peer) for peer in self._peers[: self._rank]]
        if before:
            self._own_part.add_(before[0] if len(before) == 1 else sum(before[1:], before[0]))
        for peer in self._peers[self._rank :]:
            self._own_part.add_(self.terms.arrived(peer))
        self.terms.release()
        incoming = {peer: self._parts[peer] for peer in self._peers}
        self.sums = Letters(dict.fromkeys(self._peers, self._own_part), incoming, self._shared_memory)
        return self.sums

    def wait(self) -> None:
        self.sums.wait()

    def finish(self) -> None:
        for peer in self._peers:
            self._parts[peer].copy_(self.sums.arrived(peer))
        self.sums.release()
        super().finish()


class PackedSum:
    """Small tensors of one kind that are summed in one operation: what they cost is that there are many.

    Attributes
    ----------
    flat : Tensor
        All of them, once they are packed.
    total : InPlaceSum or None
        Their sum, once it is posted.
    """

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self.flat = torch.empty(0)
        self.total: InPlaceSum | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of all of them."""
        return sum(tensor.nbytes for tensor in self._tensors)

    def add(self, tensor: Tensor) -> slice:
        """The place of one more tensor among the others."""
        start = sum(map(len, self._tensors))
        self._tensors.append(tensor.reshape(-1))
        return slice(start, start + tensor.numel())

    def pack(self) -> Tensor:
        """All of them, in one."""
        self.flat = torch.cat(self._tensors)
        return self.flat
