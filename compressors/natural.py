"""Stochastic rounding to powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from commeff.compressors.base import Compressor, Scope
from commeff.compressors.message import Tiled
from commeff.compressors.packing import pack_into, packed_bytes, unpack_from, words
from commeff.compressors.random import WorkerRandom

_BITS, _MANTISSA, _INFINITY = 9, 23, 0x7F800000


@dataclass(frozen=True, eq=False)
class NaturalMessage(Tiled):
    """Each coordinate 0, infinity or a power of two, with a sign.

    Wire format: d codes of 9 bits (`compressors.packing`): 8 bits e, then the sign. e = 0 is 0, 255 infinity, else
    2^(e - 127).
    """

    def tile(self, rows: slice, columns: slice) -> Tensor:
        codes = unpack_from(self.parts[0][rows], _BITS, columns, self.d)
        return (codes.int() << _MANTISSA).view(torch.float32)


@dataclass(frozen=True)
class Natural(Compressor):
    """Each magnitude becomes one of the two powers of two around it, without bias.

        C(v)_i = sign(v_i) 2^{a+1} with probability |v_i| / 2^a - 1, else sign(v_i) 2^a,  2^a <= |v_i| <= 2^{a+1}

    E|C(v) - v|^2 = sum_i (|v_i| - 2^a)(2^(a+1) - |v_i|); omega = 1/8, attained at |v_i| = 4/3 2^a. Sends 9 bits per
    coordinate.

    The range is that of float32 for every dtype: float64 vectors are rounded to float32 first (relative error 6e-8).
    Magnitudes below 2^-126 become 0 or 2^-126, still without bias but with a larger variance; those above 2^127 may
    become infinity; NaN becomes infinity.

    Horvath et al. 2019, arXiv:1905.10988.

    When: a cheap, unbiased quarter of the bytes that can be cut anywhere.

    Examples
    --------
    >>> Natural().compress(torch.tensor([[4.0, 0.0, -0.125]]), WorkerRandom(0, [0])).decode().tolist()
    [[4.0, 0.0, -0.125]]
    """

    scope: ClassVar[Scope] = "coordinate"

    def compress(self, vectors: Tensor, random: WorkerRandom) -> NaturalMessage:
        rows, d = vectors.shape
        packed = torch.empty(rows, packed_bytes(d, _BITS), dtype=torch.uint8, device=vectors.device)
        for row, column, bits in random.bit_tiles(d):
            numbers = words(vectors[row, column].float())
            noise = bits.bitwise_right_shift_(32 - _MANTISSA).bitwise_and_((1 << _MANTISSA) - 1)
            exponents = noise.add_((numbers & 0x7FFFFFFF).clamp_max_(_INFINITY)).bitwise_right_shift_(_MANTISSA)
            pack_into(packed[row], exponents.add_((numbers >> 31) & 1, alpha=256), _BITS, column.start, d)
        return NaturalMessage((packed,), d, vectors.dtype)

    def omega(self, d: int) -> float:
        return 1 / 8

    def delta(self, d: int) -> float:
        return 7 / 8
