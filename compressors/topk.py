"""The k coordinates of largest magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from commeff.compressors.message import DenseMessage, joined
from commeff.compressors.packing import pack, unpack
from commeff.compressors.random import WorkerRandom
from commeff.compressors.selection import largest_magnitudes
from commeff.compressors.sparse import Sparse, Sparsifier


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
