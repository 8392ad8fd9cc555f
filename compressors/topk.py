"""The k coordinates of largest magnitude, exactly, the lower index winning among equals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from commeff.compressors.message import DenseMessage, joined
from commeff.compressors.packing import pack, unpack, words
from commeff.compressors.random import WorkerRandom
from commeff.compressors.selection_cpu import largest_of_row
from commeff.compressors.sparse import Sparse, Sparsifier

LONG = 1 << 12  # columns from which the fast path is faster


@dataclass(frozen=True, eq=False)
class Selected(Sparse):
    """k coordinates of the sender's choice.

    Wire format: k increasing indices of ceil(log2 d) bits (`compressors.packing`), then the message of the k values.
    """

    def indices(self) -> Tensor:
        return unpack(self.parts[0], index_bits(self.d), self.forms[0].d).long()


def index_bits(d: int) -> int:
    """Bits of an index below d: ceil(log2 d)."""
    return max(d - 1, 0).bit_length()


@dataclass(frozen=True)
class TopK(Sparsifier):
    """The k coordinates of largest magnitude, the others 0; the lower index wins among equals. NaN is largest.

    |C(v) - v|^2 = sum of the d - k smallest squares; delta = k/d. Sends k values in the dtype of v and k packed
    indices.

    Stich et al. 2018, arXiv:1809.07599.

    Examples
    --------
    >>> import torch
    >>> message = TopK(k=2).compress(torch.tensor([[1.0, -3.0, 2.0, 2.0]]), WorkerRandom(0, [0]))
    >>> message.decode().tolist(), message.wire_bytes.tolist()
    ([[0.0, -3.0, 2.0, 0.0]], [9])
    """

    @property
    def exact(self) -> bool:
        return True

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Selected:
        d, k = vectors.shape[1], self.kept(vectors.shape[1])
        indices = largest_magnitudes(vectors, k)
        parts, forms = joined([DenseMessage((vectors.gather(1, indices),), k, vectors.dtype)])
        return Selected((pack(indices, index_bits(d)), *parts), d, vectors.dtype, forms)

    def omega(self, d: int) -> float | None:
        return 0.0 if self.kept(d) == d else None

    def delta(self, d: int) -> float:
        return self.kept(d) / d if d else 1.0

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(ratio=0.25), cls(k=3)]


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
