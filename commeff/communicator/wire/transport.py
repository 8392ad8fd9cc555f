"""Moving tensors between processes: the only code that sends, and the physical count of what it handed over."""

from __future__ import annotations

import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from commeff.communicator.wire.exchange import InPlaceSum, Letters, NetworkSum, PackedSum, SharedSum, WireOperation
from commeff.communicator.wire.group import enough_files
from commeff.communicator.wire.shared_memory import SharedMemory

try:
    from torch.distributed import all_gather_single
except ImportError:  # its name before torch 2.13
    from torch.distributed import all_gather_into_tensor as all_gather_single

Arrived = dict[int, Tensor]  # peer -> what has come from it

SIZES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")  # variables of torchrun, srun and mpirun
SMALL = 2**16  # bytes: less is sent together with others
_ABANDONED: list[Any] = []  # works of transports that are gone


def started_alone() -> bool:
    """Whether nothing has started this process as one of several, and it is in no group."""
    return not dist.is_initialized() and all(int(os.environ.get(name) or 1) == 1 for name in SIZES)


def processes(group: Any = None) -> int:
    """The number of processes in a torch.distributed group."""
    if not dist.is_initialized():
        raise ValueError("there is no process group; start with torchrun and call torch.distributed.init_process_group")
    return dist.get_world_size(group)


class Transport:
    """The processes of one torch.distributed group, or this process alone when there is none.

    Operations are posted and return a function that waits for the result, so that whoever has something else to do can
    do it in between. gloo moves host memory: what lies on a GPU is copied there and back. Processes of one machine use
    memory that they share instead; what goes through it counts like anything else.

    Attributes
    ----------
    sent : Counter
        The bytes that this process handed to each kind of operation.
    waited : float
        Seconds that this process has stood still for others: communication that nothing was hidden behind.
    size, rank : int
        The number of processes, and which of them this one is.
    """

    def __init__(self, group: Any = None, alone: bool = True) -> None:
        self.group = group
        self.size = 1 if alone else processes(group)
        self.rank = 0 if alone else dist.get_rank(group)
        self._nccl = not alone and "nccl" in dist.get_backend_config(group)
        self._shared_memory: SharedMemory | None = None
        if not alone and not self._nccl:
            with enough_files(self.size):
                self._shared_memory = SharedMemory(group, self.rank, self.size)
        self._together = False
        self._queue: list[WireOperation] = []
        self._joints: dict[Any, PackedSum] = {}
        self._shared_sums: list[SharedSum] = []
        self._unreleased: list[Letters] = []
        self._works: list[Any] = []
        if not alone and not self._nccl:
            weakref.finalize(self, _abandon, self._works)
        self.sent: Counter[str] = Counter()
        self.waited = 0.0

    def _count(self, kind: str, tensor: Tensor) -> None:
        self.sent[kind] += tensor.numel() * tensor.element_size()

    def _reachable(self, tensor: Tensor) -> Tensor:
        """The tensor where the backend can send it from."""
        return tensor if self._nccl else tensor.cpu()

    def _timed(self, wait: Callable[[], Any]) -> None:
        begin = time.perf_counter()
        wait()
        self.waited += time.perf_counter() - begin

    def sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """The sum of everybody's tensor, in place."""
        if self.size == 1:
            return lambda: tensor
        self._release()
        self._count("all_reduce", tensor)
        moved = self._reachable(tensor)
        if self._together and moved.nbytes < SMALL:
            return self._sum_jointly(tensor, moved)
        total = self._sum_of(moved)
        self._submit(total, hold=total.near)  # a large one over the network sets out at once

        def wait() -> Tensor:
            self._finish(total)
            return tensor if moved is tensor else tensor.copy_(moved)

        return wait

    def _sum_jointly(self, tensor: Tensor, moved: Tensor) -> Callable[[], Tensor]:
        """Begin the sum of one of several small tensors, which starts when all of them are known."""
        joint = self._joints.setdefault((moved.dtype, moved.device), PackedSum())
        place = joint.add(moved)

        def wait() -> Tensor:
            if joint.total is None:
                self._flush()
            assert joint.total is not None
            self._finish(joint.total)
            return tensor.copy_(joint.flat[place].view(tensor.shape))

        return wait

    def all_gather(self, rows: Tensor, sizes: list[int]) -> Callable[[], Tensor]:
        """Everybody's byte rows (sizes[rank] of them at each) in rank order, at every process."""
        if self.size == 1:
            return lambda: rows
        self._release()
        self._count("all_gather", rows)
        if self._shared_memory is not None and len(self._shared_memory.near) == self.size - 1:
            return self._gather_by_memory(rows.contiguous(), sizes)
        self._flush()
        most, moved = max(sizes), self._reachable(rows)
        missing = moved.new_zeros(most - moved.shape[0], moved.shape[1])
        padded = torch.cat([moved, missing]) if len(missing) else moved.contiguous()
        everything = moved.new_empty(self.size * most, moved.shape[1])
        work = all_gather_single(everything, padded, group=self.group, async_op=True)

        def wait() -> Tensor:
            self._timed(work.wait)
            if min(sizes) == most:
                return everything.to(rows.device)
            return torch.cat([everything[r * most : r * most + size] for r, size in enumerate(sizes)]).to(rows.device)

        return wait

    def _gather_by_memory(self, rows: Tensor, sizes: list[int]) -> Callable[[], Tensor]:
        """The same where everybody shares our memory: rows are put there once, for all."""
        host, peers = self._reachable(rows), [peer for peer in range(self.size) if peer != self.rank]
        outgoing = dict.fromkeys(peers, host) if len(host) else {}
        incoming = {peer: host.new_empty(sizes[peer], host.shape[1]) for peer in peers if sizes[peer]}
        arrive = self._exchange(outgoing, incoming)

        def wait() -> Tensor:
            gathered = {**arrive(), self.rank: host}
            return torch.cat([gathered[rank] for rank in sorted(gathered)]).to(rows.device)

        return wait

    def broadcast(self, tensor: Tensor) -> None:
        """Rank 0's tensor at every process, in place: how a run begins. No part of a method, not counted."""
        if self.size > 1:
            moved = self._reachable(tensor)
            dist.broadcast(moved, group=self.group, group_src=0)
            if moved is not tensor:
                tensor.copy_(moved)

    def exchange(
        self, kind: str, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]
    ) -> Callable[[], Arrived]:
        """Send a buffer to each peer in `outgoing` and receive one like each in `incoming`.

        What has arrived is in those buffers, or in memory that a peer shares: to be read before the next operation.
        """
        for buffer in outgoing.values():
            self._count(kind, buffer)
        return self._exchange(outgoing, incoming)

    def _exchange(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> Callable[[], Arrived]:
        """The same, not counted."""
        self._release()
        exchange = Letters(
            {peer: self._reachable(buffer).contiguous() for peer, buffer in outgoing.items()},
            {peer: self._reachable(buffer) for peer, buffer in incoming.items()},
            self._shared_memory,
        )
        self._submit(exchange)

        def wait() -> Arrived:
            self._release()
            if not exchange.posted:
                self._flush()
            if outgoing or incoming:
                self._timed(exchange.wait)
            self._unreleased.append(exchange)
            return {peer: exchange.arrived(peer).to(buffer.device) for peer, buffer in incoming.items()}

        return wait

    def _release(self) -> None:
        """Shared memory that was handed out before has been read by now."""
        for exchange in self._unreleased:
            exchange.release()
        self._unreleased.clear()

    @contextmanager
    def together(self, linger: bool = False) -> Iterator[None]:
        """Exchanges inside are posted at the end, as one: all receives before the first send. Small sums become one.

        What may `linger` stays until somebody waits or something else is sent, if all of it is so small, or so near,
        that it gains nothing by setting out.
        """
        if self._together:
            yield
            return
        self._together = True
        try:
            yield
            small = sum(joint.nbytes for joint in self._joints.values()) < SMALL
            if not (linger and small and all(operation.near for operation in self._queue)):
                self._flush()
        except BaseException:
            self._queue, self._joints = [], {}
            raise
        finally:
            self._together = False

    # What follows is used by what stands above; nothing of it uses that.

    def _finish(self, total: InPlaceSum) -> None:
        """Wait for a sum."""
        if total.finished:
            return
        if not total.posted:
            self._flush()
        if total in self._shared_sums:
            self._add_up()
        self._timed(total.wait)
        total.finish()

    def _add_up(self) -> None:
        """All shared sums under way, so that the processes wait for each other once and not once a sum."""
        self._flush()
        totals, self._shared_sums = self._shared_sums, []
        for total in totals:
            self._timed(total.terms.wait)
        self._post([total.add() for total in totals])

    def _submit(self, operation: WireOperation, hold: bool = True) -> None:
        """Post it, after what was there before, or queue it for `together`."""
        self._queue.append(operation)
        if not (hold and self._together):
            self._flush()

    def _flush(self) -> None:
        """Post everything in the queue, as one."""
        joints, self._joints = self._joints, {}
        for joint in joints.values():
            joint.total = self._sum_of(joint.pack())
            self._queue.append(joint.total)
        operations, self._queue = self._queue, []
        self._shared_sums += [operation for operation in operations if isinstance(operation, SharedSum)]
        self._post(operations)

    def _sum_of(self, tensor: Tensor) -> InPlaceSum:
        """The sum in place, by shared memory where everybody reaches it; its parts must be worth it."""
        smallest = tensor.view(-1)[: tensor.numel() // self.size]
        if self._shared_memory is not None and self._shared_memory.reaches(smallest, range(self.size)):
            return SharedSum(tensor, self.rank, self.size, self._shared_memory)
        return NetworkSum(tensor)

    def _post(self, operations: Sequence[WireOperation]) -> None:
        """Post the exchanges of all operations, receives before sends, and then what else they need.

        gloo is half-duplex on a narrow link if sends come first. NCCL takes all exchanges as one group, in which the
        order between two processes is that of the exchanges on both sides.
        """
        exchanges = [exchange for operation in operations for exchange in operation.exchanges()]
        receives = [(e, peer, buffer) for e in exchanges for peer, buffer in e.receives()]
        sends = [(e, peer, buffer) for e in exchanges for peer, buffer in e.sends()]
        for exchange in exchanges:
            exchange.share()
        if self._nccl and (receives or sends):
            group = [dist.P2POp(dist.irecv, buffer, group=self.group, group_peer=p) for _, p, buffer in receives]
            group += [dist.P2POp(dist.isend, buffer, group=self.group, group_peer=p) for _, p, buffer in sends]
            works = dist.batch_isend_irecv(group)
            for exchange in exchanges:
                exchange.works = works
        else:
            for exchange, peer, buffer in receives:
                exchange.works.append(dist.irecv(buffer, group=self.group, group_src=peer))
            for exchange, peer, buffer in sends:
                exchange.works.append(dist.isend(buffer, group=self.group, group_dst=peer))
            self._works[:] = [work for work in self._works if not work.is_completed()]
            self._works += [work for exchange in exchanges for work in exchange.works]
        for operation in operations:
            operation.post(self.group)


def _abandon(works: list[Any]) -> None:
    """Keep what is still under way: gloo loses messages that come after one whose work is gone."""
    _ABANDONED.extend(work for work in works if not work.is_completed())
