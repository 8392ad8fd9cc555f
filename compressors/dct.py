"""The largest coefficients of a discrete cosine transform."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import pi, sqrt
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from commeff.compressors.base import Compressor, Scope, wide
from commeff.compressors.blockwise import Blockwise
from commeff.compressors.layout import Layout
from commeff.compressors.message import Compound, Message, joined
from commeff.compressors.random import WorkerRandom
from commeff.compressors.topk import TopK

LONGEST = 4096  # coordinates of a chunk: its transform is a matrix
ROWS = 64  # that are multiplied at a time: always as many, so that none depends on the others


@dataclass(frozen=True, eq=False)
class CosineMessage(Compound):
    """Rows whose cosine transforms are those of the message inside. Wire format: that of the message."""

    def decode(self) -> Tensor:
        coefficients = self.inner[0].decode().to(wide(self.dtype))
        return _times(coefficients, cosines(self.d, coefficients)).to(self.dtype)


def cosines(d: int, like: Tensor) -> Tensor:
    """(d, d): row i is sqrt(2/d) cos(pi i (2j + 1) / 2d), row 0 1 / sqrt(d); of the dtype and device of ``like``."""
    return _matrix(d, like.dtype, like.device)


@lru_cache(maxsize=8)
def _matrix(d: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type == "meta":
        return torch.empty(d, d, dtype=dtype, device=device)
    numbers = torch.arange(d, dtype=torch.float64)
    matrix = torch.outer(numbers, 2 * numbers + 1).mul_(pi / (2 * max(d, 1))).cos_().mul_(sqrt(2 / max(d, 1)))
    matrix[:1] /= sqrt(2)
    return matrix.to(device, dtype)


def _times(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix, by products of one shape: each row's bits are its own, whatever company it has."""
    count, rest = len(rows), -len(rows) % ROWS
    rows = pad(rows, (0, 0, 0, rest)) if rest else rows  # or it would be copied
    batches = rows.reshape((count + rest) // ROWS, ROWS, rows.shape[1])
    return torch.bmm(batches, matrix.expand(len(batches), -1, -1)).flatten(0, 1)[:count]


@dataclass(frozen=True)
class DCTTopK(Compressor):
    """The k largest coefficients of the orthonormal cosine transform (DCT-II) of each ``chunk`` of coordinates.

        c = D v,   D_ij = sqrt(2/b) cos(pi i (2j + 1) / 2b),  D_0j = 1 / sqrt(b);    C(v) = D^T top_k(c)

    |C(v) - v|^2 is the sum of the squares of the coefficients that are left out; delta = k/b for chunks of b, as of
    top-k, but near 1 where neighbours are alike. A shorter last chunk keeps k too. Sends k values in the dtype of v
    and k indices of ceil(log2 b) bits for each chunk. Chunks are of the row, whatever tensors lie there: within
    `PerTensor`, of each tensor.

    Peng, Quesnelle, Kingma 2024 (DeMo), arXiv:2411.19870, which takes chunks of 64 and k from 1 to 32.

    When: momentum and other vectors that vary slowly along a tensor, with a memory; indices are short.

    Parameters
    ----------
    k
        Coefficients of a chunk that are kept, from 1 to ``chunk``.
    chunk
        b, the coordinates that are transformed together, at most 4096; 64 by default. None: all of a row.

    Examples
    --------
    >>> message = DCTTopK(k=1, chunk=4).compress(torch.tensor([[2.0, 2.0, 2.0, 2.0, 1.0]]), WorkerRandom(0, [0]))
    >>> message.decode().round(decimals=5).tolist(), message.wire_bytes.tolist()
    ([[2.0, 2.0, 2.0, 2.0, 1.0]], [9])
    """

    k: int
    chunk: int | None = 64

    scope: ClassVar[Scope] = "whole"

    def __post_init__(self) -> None:
        if self.chunk is not None and not 1 <= self.chunk <= LONGEST:
            raise ValueError(f"DCTTopK: chunk must lie in [1, {LONGEST}], got {self.chunk}")
        if not 1 <= self.k <= (self.chunk or LONGEST):
            raise ValueError(f"DCTTopK: k must lie in [1, chunk] = [1, {self.chunk or LONGEST}], got {self.k}")

    def bind(self, layout: Layout) -> Self:
        if self.chunk is None and layout.d > LONGEST:
            raise ValueError(f"DCTTopK: a row must have at most {LONGEST} coordinates, got {layout.d}; give a chunk")
        return self

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        if self.chunk is not None:
            return Blockwise(replace(self, chunk=None), self.chunk).compress(vectors, random)
        d, numbers = vectors.shape[1], vectors.to(wide(vectors.dtype))
        coefficients = _times(numbers, cosines(d, numbers).T).to(vectors.dtype)
        largest = TopK(k=min(self.k, d)).compress(coefficients, random) if d else TopK(1.0).compress(vectors, random)
        parts, forms = joined([largest])
        return CosineMessage(parts, d, vectors.dtype, forms)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float | None:
        if self.chunk is not None:
            return Blockwise(replace(self, chunk=None), self.chunk).delta(d)
        return min(self.k, d) / d if d else 1.0

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(3, chunk=16), cls(5, chunk=None)]
