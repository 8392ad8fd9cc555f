"""What processes tell each other beside messages: facts as JSON, tensors as tensors. Nothing that comes is executed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

TAG = 1  # of tensors that are gathered; the transport's messages have none

Kind = tuple[str, list[int]]  # the type and the shape of a tensor


def share_json(value: Any, group: Any = None) -> list[Any]:
    """Everybody's value, of numbers, text, lists and dicts with text as keys, in rank order at every process."""
    place, size = _place(group), dist.get_world_size(group)
    text = _bytes(value)
    lengths = [torch.zeros(1, dtype=torch.int64, device=place) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(text)], device=place), group=group)
    most = max(map(int, lengths))
    padded = torch.cat([text, text.new_zeros(most - len(text))]).to(place)
    texts = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(texts, padded, group=group)
    return [_value(text[: int(length)]) for text, length in zip(texts, lengths, strict=True)]


def broadcast_state(state: Any, group: Any = None, source: int = 0) -> Any:
    """The state of the process `source` at every one: numbers, text, tensors, and dicts, lists, tuples of them."""
    place, first = _place(group), dist.get_rank(group) == source
    tensors: list[Tensor] = []
    text = _bytes([_skeleton(state, tensors), [*map(_kind, tensors)]]) if first else torch.empty(0)
    length = torch.tensor([len(text)], device=place)
    dist.broadcast(length, group=group, group_src=source)
    text = text.to(place) if first else torch.empty(int(length), dtype=torch.uint8, device=place)
    dist.broadcast(text, group=group, group_src=source)
    skeleton, kinds = _value(text)
    for i, kind in enumerate(kinds):
        flat = _flat(tensors[i]).to(place) if first else _empty(kind, place)
        dist.broadcast(flat, group=group, group_src=source)
        if not first:
            tensors.append(_shaped(flat, kind))
    return state if first else _filled(skeleton, tensors)


def gather_tensors(tensors: Sequence[Tensor], group: Any = None) -> list[list[Tensor]] | None:
    """Everybody's tensors in rank order at rank 0, None elsewhere. They may differ in number and shape."""
    place, rank = _place(group), dist.get_rank(group)
    kinds_of_all = share_json([*map(_kind, tensors)], group)
    if rank > 0:
        for tensor in tensors:
            dist.send(_flat(tensor).to(place), group=group, group_dst=0, tag=TAG)
        return None
    gathered = [[*tensors]]
    for other, kinds in enumerate(kinds_of_all[1:], start=1):
        flats = [_empty(kind, place) for kind in kinds]
        for flat in flats:
            dist.recv(flat, group=group, group_src=other, tag=TAG)
        gathered.append([_shaped(flat, kind) for flat, kind in zip(flats, kinds, strict=True)])
    return gathered


def gather_states(state: Any, group: Any = None) -> list[Any] | None:
    """Everybody's state, as `broadcast_state` takes it, in rank order at rank 0, None elsewhere."""
    tensors: list[Tensor] = []
    skeletons = share_json(_skeleton(state, tensors), group)
    gathered = gather_tensors(tensors, group)
    return gathered and [_filled(skeleton, part) for skeleton, part in zip(skeletons, gathered, strict=True)]


def _place(group: Any) -> torch.device:
    """The device that the group can send from: NCCL alone knows no host memory."""
    nccl_only = "cpu:" not in dist.get_backend_config(group)  # `get_backend` is "undefined" where nobody has named one
    return torch.device("cuda", torch.cuda.current_device()) if nccl_only else torch.device("cpu")


def _bytes(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _value(text: Tensor) -> Any:
    return json.loads(text.cpu().numpy().tobytes())


def _kind(tensor: Tensor) -> Kind:
    return str(tensor.dtype).removeprefix("torch."), [*tensor.shape]


def _flat(tensor: Tensor) -> Tensor:
    """The bytes of a tensor. One number may have any stride and still be contiguous."""
    return tensor.detach().contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"the type of a tensor must be one of torch's, got {name!r}")
    return dtype


def _empty(kind: Kind, place: torch.device) -> Tensor:
    return torch.empty(math.prod(kind[1]) * _dtype(kind[0]).itemsize, dtype=torch.uint8, device=place)


def _shaped(flat: Tensor, kind: Kind) -> Tensor:
    return flat.cpu().view(_dtype(kind[0])).view(kind[1])


def _skeleton(node: Any, tensors: list[Tensor]) -> Any:
    """The state as JSON, its tensors put into the list: JSON has neither tuples nor keys that are numbers."""
    if isinstance(node, Tensor):
        tensors.append(node)
        return {"tensor": len(tensors) - 1}
    if isinstance(node, dict):
        return {"dict": [[name, _skeleton(value, tensors)] for name, value in node.items()]}
    if isinstance(node, (list, tuple)):
        return {"tuple" if isinstance(node, tuple) else "list": [_skeleton(value, tensors) for value in node]}
    return node


def _filled(node: Any, tensors: Sequence[Tensor]) -> Any:
    """Put back together what `_skeleton` took apart."""
    if not isinstance(node, dict):
        return node
    ((kind, value),) = node.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {name: _filled(item, tensors) for name, item in value}
    items: Iterator[Any] = (_filled(item, tensors) for item in value)
    return tuple(items) if kind == "tuple" else [*items]
