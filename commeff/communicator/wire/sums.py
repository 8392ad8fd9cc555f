"""Sums over all processes: over the network, by memory that all share, and of many small tensors at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from commeff.communicator.wire.exchange import Exchange, WireOperation
from commeff.communicator.wire.shared_memory import SharedMemory


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
    terms : Exchange
        Everybody's parts, which are posted first.
    sums : Exchange
        What has been added up, which is posted then.
    """

    def __init__(self, tensor: Tensor, rank: int, size: int, shared_memory: SharedMemory) -> None:
        self._parts, self._rank, self._shared_memory = tensor.view(-1).tensor_split(size), rank, shared_memory
        self._own, self._peers = self._parts[rank], [peer for peer in range(size) if peer != rank]
        outgoing = {peer: self._parts[peer] for peer in self._peers}
        self.terms = Exchange(outgoing, {peer: torch.empty_like(self._own) for peer in self._peers}, shared_memory)
        self.near = self.terms.near
        self.sums: Exchange

    def exchanges(self) -> list[Exchange]:
        return [self.terms]

    def add(self) -> Exchange:
        """The sums, to be posted. All terms have arrived."""
        before = [self.terms.arrived(peer) for peer in self._peers[: self._rank]]
        if before:
            self._own.add_(before[0] if len(before) == 1 else sum(before[1:], before[0]))
        for peer in self._peers[self._rank :]:
            self._own.add_(self.terms.arrived(peer))
        self.terms.release()
        incoming = {peer: self._parts[peer] for peer in self._peers}
        self.sums = Exchange(dict.fromkeys(self._peers, self._own), incoming, self._shared_memory)
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
