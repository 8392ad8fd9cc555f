"""Floating-point numbers of 8 bits, and stochastic rounding to powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor

from commeff.compressors.base import Compressor, ScaledRows, Scope
from commeff.compressors.compiled import by_columns, compiled
from commeff.compressors.hashing import bits_of
from commeff.compressors.layout import Layout
from commeff.compressors.message import Tiled
from commeff.compressors.packing import bytes_of, packed, unpacked, words
from commeff.compressors.random import WorkerRandom
from commeff.compressors.reductions import row_max


class Format(NamedTuple):
    """A format: its torch dtype, largest number, relative rounding error, and error below its normal numbers."""

    dtype: torch.dtype
    largest: float
    relative: float
    absolute: float


FORMATS = {
    "e4m3": Format(torch.float8_e4m3fn, 448.0, 2.0**-4, 2.0**-10),
    "e5m2": Format(torch.float8_e5m2, 57344.0, 2.0**-3, 2.0**-17),
}


@dataclass(frozen=True, eq=False)
class Fp8Message(Tiled):
    """Each coordinate a number of 8 bits, times the scale over the format's largest number.

    Wire format: the scale (float32; float64 for float64 vectors), then d bytes.
    """

    format: str

    def tile(self, rows: slice, columns: slice) -> Tensor:
        return floats(self.parts[1][rows, columns], self.parts[0][rows] / FORMATS[self.format].largest, self.format)


@compiled
def floats(data: Tensor, unit: Tensor, name: str) -> Tensor:
    """The numbers that bytes of a format stand for, times the unit."""
    return data.view(FORMATS[name].dtype).to(unit.dtype) * unit


@compiled
def narrowed(vectors: Tensor, scale: Tensor, name: str) -> tuple[Tensor]:
    """The bytes of numbers in a format whose largest number stands for the scale."""
    dtype, most, *_ = FORMATS[name]
    numbers = vectors / torch.where(scale > 0, scale, 1) * most
    return (numbers.clamp(-most, most).to(dtype).view(torch.uint8),)


@dataclass(frozen=True)
class Fp8(ScaledRows):
    """One byte per coordinate: the nearest 8-bit float of v in units in which its largest magnitude m is the largest.

        C(v)_i = (m / L) round(L v_i / m),    L = 448 (e4m3), 57344 (e5m2)

    |C(v)_i - v_i| <= max(u |v_i|, a m / L) with u = 2^-4, a = 2^-10 (e4m3) or u = 2^-3, a = 2^-17 (e5m2): all numbers
    from m / 28672 (e4m3), m / 9.4e8 (e5m2) on have the same relative error. Biased; delta = 1 - u^2 - d (a / L)^2.
    Sends 8 bits per coordinate and m.

    Micikevicius et al. 2022, arXiv:2209.05433.

    When: a quarter of the bytes for vectors whose numbers differ much in size; `Int8` where they do not.

    Parameters
    ----------
    format
        "e4m3" (the default): 3 bits of mantissa, or "e5m2": 2 of them, and a wider range. For a scale of each block:
        `Blockwise`.

    Examples
    --------
    >>> message = Fp8().compress(torch.tensor([[7.0, 0.001, -0.5]]), WorkerRandom(0, [0]))
    >>> message.decode().tolist(), message.wire_bytes.tolist()
    ([[7.0, 0.0009765625, -0.5]], [7])
    """

    format: Literal["e4m3", "e5m2"] = "e4m3"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"Fp8: format must be one of {', '.join(FORMATS)}, got {self.format!r}")

    def measure(self, vectors: Tensor, layout: Layout | None = None) -> Tensor:
        return row_max(vectors, layout)

    def scaled(self, vectors: Tensor, scale: Tensor, random: WorkerRandom) -> Fp8Message:
        (data,) = by_columns(narrowed, vectors, scale, self.format)
        return Fp8Message((scale, data), vectors.shape[1], vectors.dtype, self.format)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float | None:
        _, largest, relative, absolute = FORMATS[self.format]
        delta = 1 - relative**2 - d * (absolute / largest) ** 2
        return delta if delta > 0 else None

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(), cls("e5m2")]


_MANTISSA, _INFINITY = 23, 0x7F800000


@dataclass(frozen=True, eq=False)
class NaturalMessage(Tiled):
    """Each coordinate 0, infinity or a power of two, with a sign.

    Wire format: d bytes e, then d sign bits (`compressors.packing`), 1 for minus. e = 0 is 0, 255 infinity, else
    2^(e - 127).
    """

    def tile(self, rows: slice, columns: slice) -> Tensor:
        exponents, signs = (part[rows] for part in self.parts)
        return powers(exponents[:, columns], bytes_of(signs, 1, columns))


@compiled
def powers(exponents: Tensor, signs: Tensor) -> Tensor:
    """The numbers that exponents with packed signs stand for, float32."""
    minus = unpacked(signs, 1)[:, : exponents.shape[1]].to(torch.int32)
    return (exponents.to(torch.int32) << _MANTISSA | minus << 31).view(torch.float32)


@compiled
def rounded(vectors: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """(r, c) columns, c a multiple of 8, as exponents and packed signs: up where the mantissa and noise overflow."""
    numbers = words(vectors.float())
    noise = bits_of(source, vectors.shape[1]) >> 32 - _MANTISSA & (1 << _MANTISSA) - 1
    exponents = noise + (numbers & 0x7FFFFFFF).clamp_(max=_INFINITY) >> _MANTISSA
    return exponents.to(torch.uint8), packed(numbers < 0, 1)


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
        return NaturalMessage(by_columns(rounded, vectors, random=random), vectors.shape[1], vectors.dtype)

    def omega(self, d: int) -> float:
        return 1 / 8

    def delta(self, d: int) -> float:
        return 7 / 8
