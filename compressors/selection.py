"""The k largest magnitudes of each row, exactly, the lower index winning among equals."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.compressors.packing import words
from commeff.compressors.selection_cpu import largest_of_row

LONG = 1 << 12


def largest_magnitudes(vectors: Tensor, k: int) -> Tensor:
    """(w, k) int64, increasing: the k coordinates of largest magnitude, NaN being larger than all numbers.

    Magnitudes are compared as the integers that have the same bits, in which order and equality are those of the
    numbers.

    >>> largest_magnitudes(torch.tensor([[2.0, -3.0, 2.0, 1.0]]), 2)
    tensor([[0, 1]])
    """
    if vectors.is_meta:
        return vectors.new_empty(len(vectors), k, dtype=torch.int64)
    if vectors.device.type == "cpu" and vectors.shape[1] >= LONG and len(vectors):
        return torch.stack([torch.from_numpy(largest_of_row(row.numpy(), k)) for row in words(vectors)])
    return largest_by_threshold(vectors, k)


def largest_by_threshold(vectors: Tensor, k: int) -> Tensor:
    """`largest_magnitudes` of all rows at once, on any device: all above the k-th magnitude, and the first equals."""
    bits = words(vectors)
    if k == 0:
        return bits.new_empty(len(vectors), 0, dtype=torch.int64)
    magnitudes = bits & torch.iinfo(bits.dtype).max
    threshold = magnitudes.topk(k, dim=1).values[:, -1:]
    above, equal = magnitudes > threshold, magnitudes == threshold
    room = k - above.sum(1, keepdim=True)
    keep = above | (equal & (equal.cumsum(1) <= room))
    return keep.nonzero()[:, 1].view(len(vectors), k)
