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
    "all_reduce": (0, "sum"),
    "all_gather_into_tensor": (0, "gather"),
    "reduce_scatter_tensor": (0, "part"),
    "all_to_all_single": (0, "part"),
    "broadcast": (0, "part"),
    "isend": (0, "send"),
    "irecv": (0, "none"),
}
_KNOWN = {"c10d": _C10D, "_c10d_functional": _FUNCTIONAL}
_GROUPS = ("process_group", "group_name")  # the argument that says who talks


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
        if func.namespace in _KNOWN:
            self._count(func, args)
        return func(*args, **(kwargs or {}))

    def _count(self, func: Any, args: Any) -> None:
        name = func._schema.name.partition("::")[2]
        if func.namespace == "_c10d_functional":
            name = name.rstrip("_").removesuffix("_out").removesuffix("_coalesced")
        if name == "wait_tensor":
            return
        if name not in _KNOWN[func.namespace]:
            raise NotImplementedError(f"what {func.namespace}.{name} sends is not known: add it to the account")
        place, share = _KNOWN[func.namespace][name]
        group = next(value for value, a in zip(args, func._schema.arguments, strict=False) if a.name in _GROUPS)
        if func.namespace == "c10d":
            group = dist.ProcessGroup.unbox(group)
        elif isinstance(group, str):
            group = dist.distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
        size = sum(leaf.nbytes for leaf in tree_leaves(args[place]) if isinstance(leaf, Tensor))
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
        if not issubclass(type(thing), Tensor) or is_traceable_wrapper_subclass(thing):
            continue
        storage = thing.untyped_storage()
        if storage.device.type != "meta" and storage.data_ptr() not in others:
            held |= Counter({storage.data_ptr(): storage.nbytes()})
    total = end = 0
    for start, size in sorted(held.items()):  # a storage may lie in another one
        total += max(0, start + size - max(start, end))
        end = max(end, start + size)
    return total
