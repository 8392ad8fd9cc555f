"""What libraries send and keep, which no counter of ours sees: bytes by process group, and live bytes."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

# Bytes that a rank of n sends for each byte of its input. What one rank sends to many, or many to one, is their mean.
_SHARES = {
    "sum": lambda n: 2 * (n - 1) / n,
    "gather": lambda n: n - 1,
    "part": lambda n: (n - 1) / n,
    "send": lambda n: 1,
    "none": lambda n: 0,
}

_C10D = {  # operation -> which of its arguments is the input, and its share
    "allreduce_": (0, "sum"),
    "allreduce_coalesced_": (0, "sum"),
    "_allgather_base_": (1, "gather"),
    "allgather_": (1, "gather"),
    "allgather_coalesced_": (1, "gather"),
    "allgather_into_tensor_coalesced_": (1, "gather"),
    "_reduce_scatter_base_": (1, "part"),
    "reduce_scatter_": (1, "part"),
    "reduce_scatter_tensor_coalesced_": (1, "part"),
    "alltoall_": (1, "part"),
    "alltoall_base_": (1, "part"),
    "broadcast_": (0, "part"),
    "reduce_": (0, "part"),
    "gather_": (1, "part"),
    "scatter_": (1, "part"),
    "send": (0, "send"),
    "recv_": (0, "none"),
    "recv_any_source_": (0, "none"),
    "barrier": (0, "none"),
    "monitored_barrier_": (0, "none"),
}

_FUNCTIONAL = {
    "all_reduce": "sum",
    "all_gather_into_tensor": "gather",
    "reduce_scatter_tensor": "part",
    "all_to_all_single": "part",
    "broadcast": "part",
    "isend": "send",
    "irecv": "none",
}


class Account(TorchDispatchMode):
    """Counts the bytes that this rank sends in each process group while the account is open, backward included.

        with Account() as account:
            loss(model(inputs)).backward()
        account.sent(mesh.group("shard"))

    A sum counts 2 (n-1)/n of its input, a gather and a scatter (n-1)/n of the longer side, a message between two ranks
    once, at its sender. Only what passes through torch.distributed is seen, not what processes of one machine share.

    Attributes
    ----------
    bytes : Counter
        By the name of the group.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def sent(self, group: Any) -> float:
        """The bytes that this rank has sent in a group."""
        return self.bytes[group.group_name]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self._count_c10d(func, args)
        elif func.namespace == "_c10d_functional":
            self._count_functional(func, args)
        return func(*args, **(kwargs or {}))

    def _count_c10d(self, func: Any, args: Any) -> None:
        name = func._schema.name.partition("::")[2]
        if name not in _C10D:
            raise NotImplementedError(f"what c10d.{name} sends is not known: add it to the account")
        place, share = _C10D[name]
        boxed = next(value for value, a in zip(args, func._schema.arguments, strict=False) if a.name == "process_group")
        group = dist.ProcessGroup.unbox(boxed)
        self._count(group, args[place], share)

    def _count_functional(self, func: Any, args: Any) -> None:
        name = func._schema.name.partition("::")[2].rstrip("_").removesuffix("_out").removesuffix("_coalesced")
        if name == "wait_tensor":
            return
        if name not in _FUNCTIONAL:
            raise NotImplementedError(f"what _c10d_functional.{name} sends is not known: add it to the account")
        group = next(value for value, a in zip(args, func._schema.arguments, strict=False) if a.name == "group_name")
        if isinstance(group, str):
            group = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
        self._count(group, args[0], _FUNCTIONAL[name])

    def _count(self, group: Any, tensors: Any, share: str) -> None:
        size = sum(leaf.nbytes for leaf in tree_leaves(tensors) if isinstance(leaf, Tensor))
        self.bytes[group.group_name] += size * _SHARES[share](group.size())


def live_bytes(apart: Iterable[Tensor] = ()) -> int:
    """Bytes of all memory that any tensor of this process holds, each byte once.

    Parameters
    ----------
    apart : iterable of tensors
        Whose memory is not counted.
    """
    gc.collect()
    others = {tensor.untyped_storage().data_ptr() for tensor in apart}
    held: Counter[int] = Counter()
    for thing in gc.get_objects():
        if not issubclass(type(thing), Tensor) or is_traceable_wrapper_subclass(thing) or thing.is_meta:
            continue
        storage = thing.untyped_storage()
        if storage.data_ptr() not in others:
            held |= Counter({storage.data_ptr(): storage.nbytes()})
    total = end = 0
    for start, size in sorted(held.items()):  # a storage may lie in another one
        total += max(0, start + size - max(start, end))
        end = max(end, start + size)
    return total
