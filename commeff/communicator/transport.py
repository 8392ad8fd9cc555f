"""Moving tensors between processes: the only code that sends, and the physical count of what it handed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Transport:
    """The processes of one torch.distributed group, or this process alone when there is none.

    `sent` counts the bytes this process handed to each kind of operation. Operations are posted and return a function
    that waits for the result, so that whoever has something else to do can do it in between.
    """

    def __init__(self, group: Any = None, alone: bool = True) -> None:
        if not alone and not dist.is_initialized():
            raise ValueError(
                "there is no process group; start with torchrun and call torch.distributed.init_process_group"
            )
        self.group = group
        self.size = 1 if alone else dist.get_world_size(group)
        self.rank = 0 if alone else dist.get_rank(group)
        self.sent: Counter[str] = Counter()

    def _count(self, kind: str, tensor: Tensor) -> None:
        self.sent[kind] += tensor.numel() * tensor.element_size()

    def sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """The sum of everybody's tensor, in place."""
        if self.size == 1:
            return lambda: tensor
        self._count("all_reduce", tensor)
        work = dist.all_reduce(tensor, group=self.group, async_op=True)

        def wait() -> Tensor:
            work.wait()
            return tensor

        return wait

    def all_gather(self, rows: Tensor, sizes: list[int]) -> Callable[[], Tensor]:
        """Everybody's byte rows (sizes[rank] of them at each) in rank order, at every process."""
        if self.size == 1:
            return lambda: rows
        self._count("all_gather", rows)
        most = max(sizes)
        padded = (
            rows if rows.shape[0] == most else torch.cat([rows, rows.new_zeros(most - rows.shape[0], rows.shape[1])])
        )
        everything = rows.new_empty(self.size * most, rows.shape[1])
        work = dist.all_gather_into_tensor(everything, padded.contiguous(), group=self.group, async_op=True)

        def wait() -> Tensor:
            work.wait()
            return torch.cat([everything[r * most : r * most + size] for r, size in enumerate(sizes)])

        return wait

    def broadcast(self, tensor: Tensor) -> None:
        """Rank 0's tensor at every process, in place: how a run begins. No part of a method, not counted."""
        if self.size > 1:
            dist.broadcast(tensor, group=self.group, group_src=0)

    def gather(self, values: Any) -> list[Any] | None:
        """Everybody's values in rank order at rank 0, None elsewhere: for checkpoints. Not counted."""
        everybody: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(values, everybody, group=self.group, group_dst=0)
        return everybody

    def exchange(self, kind: str, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Callable[[], None]:
        """Send a buffer to each peer in `outgoing` and fill the buffers of `incoming`.

        Receives are posted before sends: on a narrow link gloo is half-duplex otherwise.
        """
        outgoing = {peer: buffer.contiguous() for peer, buffer in outgoing.items()}
        received = [dist.irecv(buffer, group=self.group, group_src=peer) for peer, buffer in incoming.items()]
        for buffer in outgoing.values():
            self._count(kind, buffer)
        sent = [dist.isend(buffer, group=self.group, group_dst=peer) for peer, buffer in outgoing.items()]

        def wait() -> None:
            for work in (*received, *sent):
                work.wait()  # type: ignore[union-attr]

        return wait
