"""A process group that is as hard to use as NCCL's may be, on a CPU: what is right by luck on gloo goes wrong here.

    with late() as backend:
        dist.init_process_group(backend)
        train()

- A group does one operation after the other, in a thread of its own, at a pace of its own. A batch counts as one.
- Results come when the process waits. Until then their place holds NaN, and nobody may write there.
- Somebody waits for every operation that has results.
- Nobody may change what an operation reads until the process has waited. A change is an error.
- All ranks of a group call the same collective at once, with as many bytes.
- A send ends when the other side receives.
- All processes make a group at once, as a split of the communicator of all, or nobody does.

The backend has "nccl" in its name, and processes share no memory.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from queue import SimpleQueue
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from commeff.communicator.wire import group as wire

NAME = "nccl_like"
SLOWEST = 0.001  # seconds that an operation is late, at most
COLLECTIVES = (
    *("_allgather_base", "_reduce_scatter_base", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("allreduce", "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather", "reduce"),
    *("reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter"),
)
RENAMED = {  # later versions of torch call some collectives by other names
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
UNEVEN = ("alltoall", "alltoall_base", "gather", "reduce_scatter", "scatter")  # no two ranks need to have equal sizes
REFUSED = (
    *("gather_into_tensor", "gather_single", "merge_remote_group", "monitored_barrier", "new_window", "reconfigure"),
    *("recv_anysource", "split_group"),
)


class Posted(dist.Work):
    """An operation, which has not begun when it is posted."""

    def __init__(self, group: Late, name: str, args: Sequence[Any], reads: bool) -> None:
        super().__init__()
        self.name, self.done, self._owner = name, Future[None](), group
        with torch.no_grad():
            self.args = tree_map_only(Tensor, Tensor.clone, args)
        pairs = [list(zip(tensors(arg), tensors(copy), strict=True)) for arg, copy in zip(args, self.args, strict=True)]
        self._places = [] if reads else pairs[0]
        held = {place.untyped_storage()._cdata for place, _ in self._places}
        self._read = [(x, copy) for x, copy in chain(*pairs) if x.untyped_storage()._cdata not in held]
        for place, _ in self._places:
            flat(place).fill_(255)

    def __del__(self) -> None:
        if getattr(self, "_places", None):
            self._owner.fail(RuntimeError(f"nobody has waited for {self}"))

    def __str__(self) -> str:
        return f"{self.name} of {[tuple(x.shape) for x in tensors(self.args)]}"

    def works(self, group: dist.ProcessGroup) -> list[dist.Work]:
        """The operation begins: what gloo has to do for it."""
        self._look()
        if self.name not in ("send", "recv"):
            self._meet(group)
            return [getattr(group, self.name)(*self.args)]
        [x], [peer, tag] = self.args[0], self.args[1:]
        here = torch.zeros(1)
        other = group.recv if self.name == "send" else group.send  # the receiver says that it is there
        return [other([here], peer, 2 * tag + 1), getattr(group, self.name)([x], peer, 2 * tag)]

    def wait(self, timeout: Any = None) -> bool:
        """The process waits until the operation has ended. Then the results are there."""
        try:
            self.done.result(self._owner.patience)
        except TimeoutError:
            raise RuntimeError(f"{self} waits for ever") from None
        self._look()
        places, self._places, self.args, self._read = self._places, [], (), []
        for place, result in places:
            if not (flat(place) == 255).all():
                raise RuntimeError(f"somebody wrote where {self} puts its results")
            flat(place).copy_(flat(result))
        return True

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        """The results, as DDP waits for them."""
        future: Any = torch.futures.Future()
        places = [place for place, _ in self._places]

        def end(_: Future[None]) -> None:
            try:
                self.wait()
            except Exception as fault:
                future.set_exception(fault)
            else:
                future.set_result(places)

        self.done.add_done_callback(end)
        return future

    def is_completed(self) -> bool:
        """As torch has it."""
        return self.done.done() and self.wait()

    def _meet(self, group: dist.ProcessGroup) -> None:
        size = "" if self.name in UNEVEN else f" of {sum(x.nbytes for x in tensors(self.args[0]))} bytes"
        mine = torch.tensor([*f"{self.name}{size}".ljust(64).encode()], dtype=torch.uint8)
        everybodys = [torch.empty_like(mine) for _ in range(group.size())]
        group.allgather([everybodys], [mine]).wait()
        said = [bytes(x.tolist()).decode().rstrip() for x in everybodys]
        if len(set(said)) > 1:
            raise RuntimeError(f"ranks must call one collective at once, got, from rank 0 on: {', '.join(said)}")

    def _look(self) -> None:
        for x, before in self._read:
            if not torch.equal(flat(x), flat(before)):
                raise RuntimeError(f"{self} reads what has been changed before it was done")


class Late(dist.ProcessGroup):
    """The group.

    patience : seconds after which a wait is an error.
    """

    patience = 300.0

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # torch's stub lacks it
        self._store, self._splits = store, 0
        self._gloo = dist.ProcessGroup(store, rank, size)
        backend, kind = dist.ProcessGroupGloo(store, rank, size, timeout=timeout), dist.ProcessGroup.BackendType.GLOO
        for each in (self, self._gloo):
            each._set_default_backend(kind)
            each._register_backend(torch.device("cpu"), kind, backend)
        self._batch: list[Posted] | None = None
        self._fault: Exception | None = None
        self._queue: SimpleQueue[list[Posted]] = SimpleQueue()
        self._worker = threading.Thread(target=self._work, daemon=True)
        self._worker.start()

    def _work(self) -> None:
        pace = random.Random(f"{self.group_name} {self.rank()}")
        while batch := self._queue.get():
            time.sleep(pace.uniform(0, SLOWEST))
            self._do(batch)
            del batch

    def _do(self, batch: Sequence[Posted]) -> None:
        try:
            for work in [work for operation in batch for work in operation.works(self._gloo)]:
                work.wait()
        except Exception as fault:
            self.fail(fault)
            for operation in batch:
                operation.done.set_exception(fault)
        else:
            for operation in batch:
                operation.done.set_result(None)

    def fail(self, fault: Exception) -> None:
        """The next operation raises the first fault of the group."""
        self._fault = self._fault or fault

    def post(self, name: str, *args: Any) -> Posted:
        """An operation joins the queue, or the batch that is being made."""
        if self._fault is not None:
            raise self._fault
        root, rank = getattr(args[-1], "rootRank", None), self.rank()
        reads = name == "send" or (name == "broadcast" and root == rank) or (name == "reduce" and root != rank)
        operation = Posted(self, name, args, reads)
        if self._batch is None:
            self._queue.put([operation])
        else:
            self._batch.append(operation)
        return operation

    def send(self, *args: Any) -> Posted:
        """As torch has it."""
        return self.post("send", *args)

    def recv(self, *args: Any) -> Posted:
        """As torch has it."""
        return self.post("recv", *args)

    def batched(self, operations: Sequence[dist.P2POp]) -> list[Posted]:
        """Sends and receives that count as one operation."""
        self._batch = []
        works = [self.post(op.op.__name__[1:], [op.tensor], op.group_peer, op.tag) for op in operations]
        self._queue.put(self._batch)
        self._batch = None
        return works

    def new_group(self, ranks: Sequence[int], timeout: timedelta, group_name: Any, **_: Any) -> Late | None:
        """The group of `ranks`, or None where this process is no member. All processes must call at once."""
        self._splits += 1
        name, mine = f"split {self._splits}", self.rank() in ranks
        members = f"{name}, {ranks}"
        self._store.add(members, mine)
        if self._store.add(name, 1) == self.size():
            self._store.set(f"{name}: all", "")
        try:
            self._store.wait([f"{name}: all"], timedelta(seconds=self.patience))
        except RuntimeError:
            raise RuntimeError(f"a group of {ranks} waits for ever: some processes make none meanwhile") from None
        if not mine:
            return None
        if self._store.add(members, 0) != len(ranks):
            raise RuntimeError(f"a group of {ranks} waits for ever: some of them make another one meanwhile")
        made = Late(dist.PrefixStore(f"{group_name}/", self._store), ranks.index(self.rank()), len(ranks), timeout)
        made._set_group_name(group_name)
        return made

    def shutdown(self) -> None:
        """The group ends, after what it has to do."""
        self._queue.put([])
        if self._fault is None:
            self._worker.join(self.patience)
        if self._fault is not None:
            raise self._fault


def _collective(name: str) -> Any:
    return lambda self, *args, **options: self.post(name, *args, *options.values())


def _refused(name: str) -> Any:
    def refuse(self: Late, *args: Any, **options: Any) -> None:
        raise NotImplementedError(f"a group like NCCL's has no {name}")

    return refuse


for _name in REFUSED:
    setattr(Late, _name, _refused(_name))
for _name, _operation in {**{name: name for name in COLLECTIVES}, **RENAMED}.items():
    setattr(Late, _name, _collective(_operation))


def tensors(tree: Any) -> list[Tensor]:
    """The tensors of a tree."""
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def flat(x: Tensor) -> Tensor:
    """The bytes of a tensor, unknown to autograd."""
    assert x.is_contiguous()
    return x.data.as_strided((x.numel(),), (1,), x.storage_offset()).view(torch.uint8)


def _batched(operations: Sequence[dist.P2POp]) -> list[dist.Work]:
    group: Any = operations[0].group or dist.group.WORLD
    return group.batched(operations)


@contextmanager
def late(patience: float = Late.patience) -> Iterator[str]:
    """Process groups as hard to use as NCCL's: `with late() as backend: dist.init_process_group(backend)`.

    Each process enters it, or is forked in it, and leaves it when it is done. In it commeff's own processes talk by
    such groups alone. Tensors are on the CPU.

    Parameters
    ----------
    patience
        Seconds after which a wait is an error.
    """
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, Late, devices=["cpu"])
    with (
        patch.object(wire, "backend", lambda device: NAME),
        patch.object(dist, "batch_isend_irecv", _batched),
        patch.object(Late, "patience", patience),
    ):
        yield NAME
