"""One bit per coordinate: signs with a scale, or two levels."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal, Self

import torch
from torch import Tensor

from commeff.compressors.base import ScaledRows, wide
from commeff.compressors.compiled import by_columns, compiled
from commeff.compressors.layout import Layout
from commeff.compressors.message import Tiled
from commeff.compressors.packing import bytes_of, packed, unpacked, words
from commeff.compressors.random import WorkerRandom
from commeff.compressors.reductions import row_halves, row_norm, row_sum


@dataclass(frozen=True, eq=False)
class SignMessage(Tiled):
    """Each coordinate scale or -scale.

    Wire format: the scale (float32; float64 for float64 vectors), then d sign bits (`compressors.packing`), 1 for
    minus.
    """

    def tile(self, rows: slice, columns: slice) -> Tensor:
        scale, data = (part[rows] for part in self.parts)
        return either(bytes_of(data, 1, columns), scale, -scale)[:, : columns.stop - columns.start]


@dataclass(frozen=True)
class ScaledSign(ScaledRows):
    """C(v) = a sign(v), where the sign of 0 is that of its sign bit; ``scale`` says which a.

        l1:  a = |v|_1 / d        |C(v) - v|^2 = |v|^2 - |v|_1^2 / d
        l2:  a = |v| / sqrt(d)    |C(v) - v|^2 = 2 |v|^2 (1 - |v|_1 / (sqrt(d) |v|))

    l1 has the least error of all a: delta = 1/d in the worst case (one coordinate), |v|_1^2 / (d |v|^2) for a given v.
    l2 keeps the norm of v: delta = 2 |v|_1 / (sqrt(d) |v|) - 1 for a given v, 0.60 for a normal one, but 2/sqrt(d) - 1
    in the worst case, which beyond 3 coordinates promises nothing; for a memory say `Assumed` what your vectors are
    like. Sends one bit per coordinate and a. NaN in v makes the row NaN.

    Bernstein et al. 2018, arXiv:1802.04434 (signs); Karimireddy et al. 2019, arXiv:1901.09847 (l1); l2 is the scale of
    DeepSpeed's 1-bit Adam, Tang et al. 2021, arXiv:2102.02888.

    When: one bit a number, with a memory: `mem_sgd`, `double_squeeze`, `choco`.

    Parameters
    ----------
    scale
        "l1" (the default) or "l2", the norm that a is made of. For a scale of each block: `Blockwise`.

    Examples
    --------
    >>> message = ScaledSign().compress(torch.tensor([[3.0, -1.0]]), WorkerRandom(0, [0]))
    >>> message.decode().tolist(), message.wire_bytes.tolist()
    ([[2.0, -2.0]], [5])
    >>> ScaledSign("l2").compress(torch.tensor([[1.0, -7.0]]), WorkerRandom(0, [0])).decode().tolist()
    [[5.0, -5.0]]
    """

    scale: Literal["l1", "l2"] = "l1"

    def __post_init__(self) -> None:
        if self.scale not in ("l1", "l2"):
            raise ValueError(f"ScaledSign: scale must be 'l1' or 'l2', got {self.scale!r}")

    def measure(self, vectors: Tensor, layout: Layout | None = None) -> Tensor:
        d = max(vectors.shape[1] if layout is None else layout.size, 1)
        if self.scale == "l2":
            return row_norm(vectors, layout) / sqrt(d)
        return (row_sum(vectors, layout) / d).to(wide(vectors.dtype))

    def scaled(self, vectors: Tensor, scale: Tensor, random: WorkerRandom) -> SignMessage:
        return SignMessage((scale, *by_columns(signs, vectors)), vectors.shape[1], vectors.dtype)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float | None:
        if self.scale == "l1":
            return 1 / max(d, 1)
        return 2 / sqrt(max(d, 1)) - 1 if d < 4 else None

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(), cls("l2")]


@dataclass(frozen=True, eq=False)
class TwoLevelMessage(Tiled):
    """Each coordinate one of two numbers.

    Wire format: the number for plus and that for minus (float32; float64 for float64 vectors), then d sign bits
    (`compressors.packing`), 1 for minus.
    """

    def tile(self, rows: slice, columns: slice) -> Tensor:
        levels, data = (part[rows] for part in self.parts)
        return either(bytes_of(data, 1, columns), *levels.split(1, dim=1))[:, : columns.stop - columns.start]


@dataclass(frozen=True)
class OneBit(ScaledRows):
    """Each number becomes the mean of those of its sign, where the sign of 0 is that of its sign bit.

        C(v)_i = m+ where v_i is positive, else m-,    m+ and m- the means of the n+ positive, n- negative numbers

    |C(v) - v|^2 = |v|^2 - n+ m+^2 - n- m-^2, the variance within the two, which is never above that of `ScaledSign`;
    delta = 1/d in the worst case. Sends one bit per coordinate and two means. NaN in v makes the row NaN.

    Seide, Fu, Droppo, Li, Yu 2014: 1-bit stochastic gradient descent, Interspeech; error in arXiv:1901.09847.

    When: one bit a number, with a memory, where positive and negative numbers differ in size.

    Examples
    --------
    >>> message = OneBit().compress(torch.tensor([[3.0, 1.0, -5.0]]), WorkerRandom(0, [0]))
    >>> message.decode().tolist(), message.wire_bytes.tolist()
    ([[2.0, 2.0, -5.0]], [9])
    """

    def measure(self, vectors: Tensor, layout: Layout | None = None) -> Tensor:
        d = vectors.shape[1] if layout is None else layout.size
        plus, minus, negative = row_halves(vectors, layout).split(1, dim=1)
        means = torch.cat([plus / (d - negative).clamp(min=1), -minus / negative.clamp(min=1)], dim=1)
        return means.to(wide(vectors.dtype))

    def scaled(self, vectors: Tensor, scale: Tensor, random: WorkerRandom) -> TwoLevelMessage:
        return TwoLevelMessage((scale, *by_columns(signs, vectors)), vectors.shape[1], vectors.dtype)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float:
        return 1 / max(d, 1)


@compiled
def signs(vectors: Tensor) -> tuple[Tensor]:
    """(r, c) columns, c a multiple of 8, as their packed sign bits."""
    return (packed(words(vectors) < 0, 1),)


@compiled
def either(data: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
    """The number for plus, or for minus, of each sign bit."""
    return unpacked(data, 1).to(plus.dtype).mul_(minus - plus).add_(plus)
