"""One bit per coordinate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from commeff.compressors.base import wide
from commeff.compressors.layout import Layout
from commeff.compressors.message import Tiled
from commeff.compressors.packing import pack_into, packed_bytes, unpack_from, words
from commeff.compressors.random import WorkerRandom
from commeff.compressors.reductions import row_sum
from commeff.compressors.scaled import ScaledRows
from commeff.compressors.scratch import tiles


@dataclass(frozen=True, eq=False)
class SignMessage(Tiled):
    """Each coordinate scale or -scale.

    Wire format: the scale (float32; float64 for float64 vectors), then d sign bits (`compressors.packing`), 1 for
    minus.
    """

    def tile(self, rows: slice, columns: slice) -> Tensor:
        scale, packed = self.parts
        minus = unpack_from(packed[rows], 1, columns, self.d).to(scale.dtype)
        return minus.mul_(-2 * scale[rows]).add_(scale[rows])


@dataclass(frozen=True)
class ScaledSign(ScaledRows):
    """C(v) = (|v|_1 / d) sign(v), where the sign of 0 is that of its sign bit.

        |C(v) - v|^2 = |v|^2 - |v|_1^2 / d

    delta = 1/d in the worst case (one coordinate), |v|_1^2 / (d |v|^2) for a
    given v. Sends one bit per coordinate and the scale. NaN in v makes the row NaN.

    Bernstein et al. 2018, arXiv:1802.04434 (signs); Karimireddy et al. 2019, arXiv:1901.09847 (the scale).

    When: one bit a number, with a memory: `mem_sgd`, `double_squeeze`, `choco`.

    Examples
    --------
    >>> message = ScaledSign().compress(torch.tensor([[3.0, -1.0]]), WorkerRandom(0, [0]))
    >>> message.decode().tolist(), message.wire_bytes.tolist()
    ([[2.0, -2.0]], [5])
    """

    def scale(self, vectors: Tensor, layout: Layout | None = None) -> Tensor:
        d = vectors.shape[1] if layout is None else layout.size
        return (row_sum(vectors, layout) / max(d, 1)).to(wide(vectors.dtype))

    def scaled(self, vectors: Tensor, scale: Tensor, random: WorkerRandom) -> SignMessage:
        rows, d = vectors.shape
        packed = torch.empty(rows, packed_bytes(d, 1), dtype=torch.uint8, device=vectors.device)
        for tile in tiles(vectors):
            pack_into(packed[tile[0]], minus(vectors[tile]), 1, tile[1].start, d)
        return SignMessage((scale, packed), d, vectors.dtype)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float:
        return 1 / max(d, 1)


def minus(vectors: Tensor) -> Tensor:
    """The sign bits, uint8."""
    bits = words(vectors)
    return (bits >> 8 * bits.element_size() - 1).to(torch.uint8).bitwise_and_(1)
