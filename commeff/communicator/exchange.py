"""What is posted: buffers to and from peers, over the network or by memory that both share, and small sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from commeff.communicator.shared import SharedMemory


class Exchange:
    """One buffer to each peer in `outgoing`, one from each in `incoming`.

    Where memory is shared, the buffer itself stays and a ring of a few bytes is sent.

    Attributes
    ----------
    works : what was posted.  posted : whether it was.
    """

    def __init__(self, outgoing: dict[int, Tensor], incoming: dict[int, Tensor], memory: SharedMemory | None) -> None:
        self.outgoing, self.incoming, self._memory = outgoing, incoming, memory
        self._rings = {peer: torch.empty(3, dtype=torch.int64) for peer in incoming if self._shared(peer, incoming)}
        self._read: list[Callable[[], None]] = []
        self.works: list[Any] = []
        self.posted = False

    def _shared(self, peer: int, buffers: dict[int, Tensor]) -> bool:
        return self._memory is not None and self._memory.reaches(buffers[peer], [peer])

    def receives(self) -> Iterator[tuple[int, Tensor]]:
        """What is received from whom."""
        yield from ((peer, self._rings.get(peer, buffer)) for peer, buffer in self.incoming.items())

    def sends(self) -> Iterator[tuple[int, Tensor]]:
        """What is sent to whom; one buffer for several peers is shared once."""
        shared = {peer: buffer for peer, buffer in self.outgoing.items() if self._shared(peer, self.outgoing)}
        readers: dict[tuple[int, int], list[int]] = {}
        for peer, buffer in shared.items():
            readers.setdefault((buffer.data_ptr(), buffer.nbytes), []).append(peer)
        for peers in readers.values():
            assert self._memory is not None
            ring = self._memory.put(shared[peers[0]], peers)
            yield from ((peer, ring) for peer in peers)
        yield from ((peer, buffer) for peer, buffer in self.outgoing.items() if peer not in shared)

    def wait(self) -> None:
        """Until everything has come and gone."""
        for work in self.works:
            work.wait()

    def arrived(self, peer: int) -> Tensor:
        """What has come from a peer: the buffer, or the peer's memory until `release`."""
        if self._memory is None or peer not in self._rings:
            return self.incoming[peer]
        view, read = self._memory.take(peer, self._rings[peer], self.incoming[peer])
        self._read.append(read)
        return view

    def release(self) -> None:
        """Say that everything has been read."""
        for read in self._read:
            read()
        self._read.clear()


class Joint:
    """Tensors of one kind that are summed in one operation.

    Attributes
    ----------
    tensors : flat, in the order in which they were added.  flat : all of them, once it is posted.  work : that.
    """

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.flat = torch.empty(0)
        self.work: Any = None

    def add(self, tensor: Tensor) -> slice:
        """Its place among the others."""
        start = sum(map(len, self.tensors))
        self.tensors.append(tensor.reshape(-1))
        return slice(start, start + tensor.numel())
