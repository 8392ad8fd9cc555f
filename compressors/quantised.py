"""Quantisation to equidistant levels: QSGD, TernGrad and block-wise int8 are one rule with three scales."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from commeff.compressors.base import ScaledRows, check_least, contraction
from commeff.compressors.blockwise import Blockwise
from commeff.compressors.compiled import by_columns, compiled
from commeff.compressors.hashing import bits_of, halves, uniform
from commeff.compressors.layout import Layout
from commeff.compressors.message import Message, Tiled
from commeff.compressors.packing import bytes_of, code_bits, pack, packed, pairs, unpack_from, unpacked
from commeff.compressors.random import WorkerRandom
from commeff.compressors.reductions import RUN, largest, row_max, row_norm


@dataclass(frozen=True, eq=False)
class LevelsMessage(Tiled):
    """Each coordinate one of the 2s + 1 multiples of scale/s between -scale and scale.

    Wire format: the scale (float32; float64 for float64 vectors), then d codes of ceil(log2(2s + 1)) bits
    (`compressors.packing`); code c stands for (c - s) scale / s.
    """

    levels: int

    def tile(self, rows: slice, columns: slice) -> Tensor:
        scale, data = (part[rows] for part in self.parts)
        bits, unit = code_bits(2 * self.levels + 1), scale / self.levels
        if bits > 8:
            return (unpack_from(data, bits, columns, self.d) - self.levels) * unit
        return multiples(bytes_of(data, bits, columns), unit, self.levels)[:, : columns.stop - columns.start]


@compiled
def multiples(data: Tensor, unit: Tensor, levels: int) -> Tensor:
    """The numbers that packed codes of at most 8 bits stand for, multiples of the unit."""
    codes = unpacked(data, code_bits(2 * levels + 1))
    return codes.to(unit.dtype).sub_(levels).mul_(unit)


def codes(vectors: Tensor, scale: Tensor, levels: int, u: Tensor | float) -> Tensor:
    """floor(levels v / scale + u), between -levels and levels, + levels: int32.

    Uniform u on [0, 1) rounds without bias: up with the probability of the fraction that floor drops. u = 1/2 rounds to
    nearest.
    """
    steps = (vectors / torch.where(scale > 0, scale, 1)).mul_(levels).add_(u)
    return steps.floor_().to(torch.int32).clamp_(-levels, levels).add_(levels)


@compiled
def quantised(vectors: Tensor, scale: Tensor | None, levels: int, source: Tensor | None = None) -> tuple[Tensor, ...]:
    """(r, c) columns, c a multiple of 8, as packed codes; those of more than 8 bits are not packed.

    Parameters
    ----------
    scale : None for that of whole rows, their largest magnitude, which comes before the codes.
    source : of the random bits, as `halves` takes it; None: to nearest.
    """
    bits, unit = code_bits(2 * levels + 1), largest(vectors) if scale is None else scale
    if source is None:
        data = packed(codes(vectors, unit, levels, 0.5), bits)
    elif bits > 4 or scale is None or not torch.compiler.is_compiling():  # short rows have few pairs
        data = codes(vectors, unit, levels, uniform(bits_of(source, vectors.shape[1]), unit.dtype))
        data = packed(data, bits) if bits <= 8 else data
    else:
        draws = halves(source, vectors.shape[1] // 2)
        even, odd = (codes(v, unit, levels, uniform(u, unit.dtype)) for v, u in zip(pairs(vectors), draws, strict=True))
        data = packed(even | odd << bits, 2 * bits)
    return (unit, data) if scale is None else (data,)


def message(vectors: Tensor, scale: Tensor | None, levels: int, random: WorkerRandom | None) -> LevelsMessage:
    """The message of rows of this scale; None: of their largest magnitude, of short rows of at most 8 bits a code."""
    parts, bits = by_columns(quantised, vectors, scale, levels, random=random), code_bits(2 * levels + 1)
    if scale is not None:
        parts = scale, parts[0] if bits <= 8 else pack(parts[0], bits)
    return LevelsMessage(parts, vectors.shape[1], vectors.dtype, levels)


@dataclass(frozen=True)
class QSGD(ScaledRows):
    """Stochastic rounding to multiples of m/s, s = ``levels``; ``bucket``: in pieces of that length.

        C(v)_i = m sign(v_i) xi_i / s,  xi_i = floor(a) + 1 with probability a - floor(a), else floor(a)
        a = s |v_i| / m
        norm "l2":   m = |v|            omega = min(d/s^2, sqrt(d)/s)
        norm "max":  m = max_i |v_i|    omega = (sqrt(1 + (d - 1)/s^2) - 1)/2, attained

    E|C(v) - v|^2 = (m^2/s^2) sum_i p_i (1 - p_i), p_i = a - floor(a).
    Sends ceil(log2(2s + 1)) bits per coordinate and m (of each bucket). NaN or infinity in v, or a norm beyond
    the largest number of its dtype, leaves no finite number in the bucket.

    Alistarh et al. 2017, arXiv:1610.02132, whose theory has the l2 norm; the max norm is called QSGDinf in
    Ramezani-Kebrya et al. 2021 (NUQSGD), arXiv:1908.06077. Of one level it is `TernGrad`.

    When: unbiased messages of 2 to 8 bits; give it a bucket on long vectors, for omega grows with their length.

    Parameters
    ----------
    levels
        s, positive multiples of the scale, from 1 to 32767: 1, 3, 7, 127 are the most that fit into 2, 3, 4, 8
        bits a coordinate.
    bucket
        Coordinates that share a norm; None, the default: all of a row. Smaller buckets have a smaller omega and cost 4
        bytes each.
    norm
        "l2" (the default) or "max". The maximum is never the larger one, and rounds with less error.

    Examples
    --------
    >>> message = QSGD(levels=7).compress(torch.eye(3, 10), WorkerRandom(0, range(3)))
    >>> message.wire_bytes.tolist(), bool((message.decode() == torch.eye(3, 10)).all())
    ([9, 9, 9], True)
    """

    levels: int
    bucket: int | None = None
    norm: Literal["l2", "max"] = "l2"

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "max"):
            raise ValueError(f"QSGD: norm must be 'l2' or 'max', got {self.norm!r}")
        if not 1 <= self.levels < 1 << 15:
            raise ValueError(
                f"QSGD: levels must lie in [1, 32767], got {self.levels}: 2 levels + 1 values are packed into at most "
                "16 bits"
            )
        check_least("QSGD: bucket", self.bucket)

    @property
    def exact_on_pieces(self) -> bool:
        return self.bucket is None

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        if self.bucket is not None:
            return Blockwise(replace(self, bucket=None), self.bucket).compress(vectors, random)
        return super().compress(vectors, random)

    def measure(self, vectors: Tensor, layout: Layout | None = None) -> Tensor:
        return (row_norm if self.norm == "l2" else row_max)(vectors, layout)

    def scaled(self, vectors: Tensor, scale: Tensor, random: WorkerRandom) -> LevelsMessage:
        return message(vectors, scale, self.levels, random)

    def omega(self, d: int) -> float:
        d = d if self.bucket is None else min(d, self.bucket)
        return min(d / self.levels**2, sqrt(d) / self.levels) if self.norm == "l2" else omega_of_max(d, self.levels)

    def delta(self, d: int) -> float | None:
        return contraction(self.omega(d))

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(1), cls(4), cls(200), cls(2, bucket=16), cls(3, norm="max"), cls(1, bucket=16, norm="max")]


@dataclass(frozen=True)
class TernGrad(QSGD):
    """Each coordinate becomes -m, 0 or m, where m = max_i |v_i|.

        C(v)_i = m sign(v_i) b_i,  b_i = 1 with probability |v_i| / m, else 0

    E|C(v) - v|^2 = m |v|_1 - |v|^2; omega = (sqrt(d) - 1)/2, attained. It is QSGD of one level and the max norm. The
    paper's optional clipping is left out, for it makes the compressor biased. Sends 2 bits per coordinate and m.

    Wen et al. 2017, arXiv:1705.07878.

    When: unbiased messages of 2 bits, where gradients have no outliers.

    Examples
    --------
    >>> TernGrad().compress(torch.tensor([[2.0, 0.0, -2.0]]), WorkerRandom(0, [0])).decode().tolist()
    [[2.0, 0.0, -2.0]]
    """

    levels: int = field(default=1, init=False, repr=False)
    bucket: None = field(default=None, init=False, repr=False)
    norm: Literal["max"] = field(default="max", init=False, repr=False)

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls()]


@dataclass(frozen=True)
class BlockScaled(ScaledRows, ABC):
    """Numbers in terms of the largest magnitude m of their block.

    Parameters
    ----------
    block
        Coordinates that share a scale; None: all of a row.
    """

    block: int | None = None

    def __post_init__(self) -> None:
        check_least(f"{type(self).__name__}: block", self.block)

    @property
    def exact_on_pieces(self) -> bool:
        return self.block is None

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        if self.block is not None:
            return Blockwise(replace(self, block=None), self.block).compress(vectors, random)
        d = vectors.shape[1]
        return self.scaled(vectors, None if 0 < d <= RUN and d % 8 == 0 else self.measure(vectors), random)

    def measure(self, vectors: Tensor, layout: Layout | None = None) -> Tensor:
        return row_max(vectors, layout)

    @abstractmethod
    def scaled(self, vectors: Tensor, scale: Tensor | None, random: WorkerRandom) -> Message:
        """The message of rows of this scale; None: of their largest magnitude, where rows are not cut."""


@dataclass(frozen=True)
class Int8(BlockScaled):
    """One byte per coordinate: multiples of D = m/127, m the largest magnitude in a ``block`` (None: of all).

    Rounded up or down without bias, E|C(v) - v|^2 = D^2 sum_i p_i (1 - p_i), p_i the fraction of |v_i|/D; omega =
    b/(4 127^2) for blocks of b. With ``stochastic=False`` to nearest: biased, each error at most D/2. Sends 8 bits
    per coordinate and m per block.

    Dettmers 2015, arXiv:1511.04561; Dettmers et al. 2022, arXiv:2110.02861 (blocks).

    When: a quarter of the bytes, nearly exact: what outer steps and pseudo-gradients are sent with.

    Parameters
    ----------
    block
        Coordinates that share a scale, 256 by default; None: all of a row.
    stochastic
        Whether numbers are rounded up or down at random without bias (the default), or to the nearest multiple.

    Examples
    --------
    >>> Int8(block=4).compress(torch.ones(1, 10), WorkerRandom(0, [0])).wire_bytes.tolist()         # 10 + 3 scales
    [22]
    """

    block: int | None = 256
    stochastic: bool = True

    levels: ClassVar[int] = 127

    def scaled(self, vectors: Tensor, scale: Tensor | None, random: WorkerRandom) -> LevelsMessage:
        return message(vectors, scale, self.levels, random if self.stochastic else None)

    def omega(self, d: int) -> float | None:
        return self._error(d) if self.stochastic else None

    def delta(self, d: int) -> float | None:
        return contraction(self._error(d))

    def _error(self, d: int) -> float:
        return (d if self.block is None else min(d, self.block)) / (4 * self.levels**2)

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(), cls(16), cls(None, stochastic=False)]


@dataclass(frozen=True)
class Int4(Int8):
    """Half a byte per coordinate: as `Int8`, with 7 levels for 127: multiples of D = m/7; omega = b/(4 7^2).

    Sends 4 bits per coordinate and m per block.

    When: an eighth of the bytes, unbiased: outer steps of `streaming_diloco`, with error feedback elsewhere.

    Parameters
    ----------
    block
        Coordinates that share a scale, 64 by default; None: all of a row.
    stochastic
        Whether numbers are rounded up or down at random without bias (the default), or to the nearest multiple.

    Examples
    --------
    >>> Int4(block=4).compress(torch.ones(1, 10), WorkerRandom(0, [0])).wire_bytes.tolist()         # 5 + 3 scales
    [17]
    """

    block: int | None = 64

    levels: ClassVar[int] = 7


def omega_of_max(d: int, levels: int) -> float:
    """The least omega of s = ``levels`` equal steps up to the largest magnitude m: (sqrt(1 + (d - 1)/s^2) - 1)/2.

    In units of m/s the largest is s and has no error; the others, u in [0, 1], have u (1 - u), and beyond 1 no more at
    a larger square. The ratio of sums (d - 1) u (1 - u) / (s^2 + (d - 1) u^2) is the largest where u = 1/(2 + 2 omega).

    >>> omega_of_max(9, 1), round(omega_of_max(9, 7), 3)
    (1.0, 0.039)
    """
    return (sqrt(1 + max(d - 1, 0) / levels**2) - 1) / 2
