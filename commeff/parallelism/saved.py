"""Tensors of a run that lie in boxes on several ranks: which boxes this one has, and what it needs of saved ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

Shape = tuple[int, ...]


class Kind(NamedTuple):
    """What is known of a saved tensor before it is read."""

    shape: Shape
    dtype: torch.dtype


@dataclass(eq=False)
class Held:
    """What this process holds of one tensor, as torch's distributed checkpoints want it.

    Attributes
    ----------
    shape : tuple of int
        Of the whole tensor.
    boxes : dict of tuple of int to Tensor
        By their offsets in it, the boxes that are here.

    Examples
    --------
    >>> parts, whole = Held((2, 3)), Held((2, 3))
    >>> parts.put((0, 0), torch.ones(2, 2))
    >>> parts.put((0, 2), torch.zeros(2, 1))
    >>> whole.put((0, 0), torch.empty(2, 3))
    >>> copy({"x": parts}, {"x": whole})
    >>> whole.boxes[0, 0]
    tensor([[1., 1., 0.],
            [1., 1., 0.]])
    """

    shape: Shape
    boxes: dict[Shape, Tensor] = field(default_factory=dict)

    def put(self, offsets: Sequence[int], box: Tensor) -> None:
        """Add a box. One that is held twice is one."""
        known = self.boxes.setdefault(tuple(offsets), box)
        if known is not box and not (known.shape == box.shape and torch.equal(known, box)):
            raise ValueError(
                f"what is saved under one name must be one tensor, got two different ones at {tuple(offsets)}: "
                "give memories that differ different names"
            )

    def size(self) -> torch.Size:
        """Of the whole tensor."""
        return torch.Size(self.shape)

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(torch.Size(at), box.size()) for at, box in self.boxes.items()]

    def __create_write_items__(self, name: str, held: Any) -> list[WriteItem]:
        return list(self._items(name))

    def _items(self, name: str) -> Iterator[WriteItem]:
        for chunk, box in zip(self.__create_chunk_list__(), self.boxes.values(), strict=True):
            data = TensorWriteData(chunk, TensorProperties(dtype=box.dtype), self.size())
            yield WriteItem(MetadataIndex(name, chunk.offsets), WriteItemType.SHARD, tensor_data=data)

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        return self.boxes[tuple(index.offset or ())]


def needed(wanted: Mapping[str, Held], saved: Mapping[str, TensorStorageMetadata]) -> list[ReadItem]:
    """Which parts of saved boxes make up the wanted ones.

    Raises
    ------
    ValueError
        A tensor is not there, not all of it, or of another shape.
    """
    found: list[ReadItem] = []
    for name, held in wanted.items():
        if name not in saved:
            raise ValueError(f"the saved state must hold {name}, got none: it is another method's or model's state")
        if tuple(saved[name].size) != held.shape:
            got = tuple(saved[name].size)
            raise ValueError(f"the saved {name} must have shape {held.shape}, got {got}: it is another model's state")
        items = create_read_items_for_chunk_list(name, saved[name], held.__create_chunk_list__())
        numbers, there = sum(box.numel() for box in held.boxes.values()), sum(prod(item.lengths) for item in items)
        if numbers != there:
            raise ValueError(f"the saved {name} must have {numbers} numbers that are needed here, got {there}")
        found += items
    return found


def place(item: ReadItem, box: Tensor, wanted: Mapping[str, Held]) -> None:
    """Copy what an item says of a saved box into the wanted one."""
    there = wanted[item.dest_index.fqn].boxes[tuple(item.dest_index.offset or ())]
    for dim, length in enumerate(item.lengths):
        box = box.narrow(dim, item.storage_offsets[dim], length)
        there = there.narrow(dim, item.dest_offsets[dim], length)
    there.copy_(box)


def copy(held: Mapping[str, Held], wanted: Mapping[str, Held]) -> None:
    """From what one process holds into what it wants, as over a checkpoint."""
    saved = {
        name: TensorStorageMetadata(TensorProperties(), tensor.size(), tensor.__create_chunk_list__())
        for name, tensor in held.items()
    }
    for item in needed(wanted, saved):
        place(item, held[item.storage_index.fqn].boxes[tuple(item.storage_index.offset or ())], wanted)


def kinds(held: Mapping[str, Held]) -> dict[str, Kind]:
    """What a checkpoint of them would say."""
    return {name: Kind(tensor.shape, next(iter(tensor.boxes.values())).dtype) for name, tensor in held.items()}
