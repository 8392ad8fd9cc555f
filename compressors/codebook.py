"""Numbers that become the nearest of a few levels which everybody knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from commeff.compressors.compiled import by_columns, compiled
from commeff.compressors.message import Tiled
from commeff.compressors.packing import bytes_of, code_bits, packed, pairs, unpacked
from commeff.compressors.quantised import BlockScaled
from commeff.compressors.random import WorkerRandom
from commeff.compressors.reductions import largest

COUNTED = 32  # levels of which those below a number are counted

# What 4-bit normal floats of bitsandbytes stand for (arXiv:2305.14314, appendix E).
NORMAL_FLOATS = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CodebookMessage(Tiled):
    """Each coordinate a level times the scale.

    Wire format: the scale (float32; float64 for float64 vectors), then d codes of ceil(log2(number of levels)) bits
    (`compressors.packing`), a code being the number of the level in increasing order.
    """

    levels: tuple[float, ...]

    def tile(self, rows: slice, columns: slice) -> Tensor:
        scale, data = (part[rows] for part in self.parts)
        data = bytes_of(data, code_bits(len(self.levels)), columns)
        return level_times(data, scale, self.levels)[:, : columns.stop - columns.start]


@compiled
def level_times(data: Tensor, scale: Tensor, levels: tuple[float, ...]) -> Tensor:
    """The levels of packed codes, times the scale."""
    return looked_up(unpacked(data, code_bits(len(levels))), levels, scale.dtype).mul_(scale)


def midpoints(levels: tuple[float, ...]) -> list[float]:
    """The numbers at which the nearest level changes."""
    return [(low + high) / 2 for low, high in pairwise(levels)]


def nearest(numbers: Tensor, levels: tuple[float, ...]) -> Tensor:
    """The number of the level nearest to each number: uint8, int32 where it is compiled.

    Counting the bounds below is ten times faster than a search among 16, and NumPy compares six times faster than torch
    on a CPU.
    """
    if len(levels) > COUNTED:
        bounds = torch.tensor(midpoints(levels), dtype=numbers.dtype, device=numbers.device)
        return torch.bucketize(numbers.contiguous(), bounds, out_int32=True).to(torch.uint8)
    if torch.compiler.is_compiling():
        return reduce(torch.add, ((numbers > bound).to(torch.int32) for bound in midpoints(levels)))
    codes, above = (torch.zeros_like(numbers, dtype=kind) for kind in (torch.uint8, torch.bool))
    for bound in midpoints(levels):
        if numbers.is_cpu:
            np.greater(numbers.numpy(), bound, out=above.numpy())
        else:
            torch.gt(numbers, bound, out=above)
        codes += above.view(torch.uint8)
    return codes


def looked_up(codes: Tensor, levels: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """The levels of codes, as a new tensor; where it is compiled, by a choice for each bit of a code."""
    codes, device = codes.int(), codes.device
    if not torch.compiler.is_compiling():
        return torch.tensor(levels, dtype=dtype, device=device).index_select(0, codes.flatten()).view(codes.shape)
    choices = [torch.full((), level, dtype=dtype, device=device) for level in levels]
    for k in range(code_bits(len(levels))):
        upper = codes & 1 << k != 0
        choices = [torch.where(upper, *pair) for pair in zip([*choices[1::2], choices[-1]], choices[::2], strict=False)]
    return choices[0]


@compiled
def coded(vectors: Tensor, scale: Tensor | None) -> tuple[Tensor, ...]:
    """(r, c) columns, c a multiple of 8, as packed normal floats, after the scale of whole rows unless it is given."""
    unit = largest(vectors) if scale is None else scale
    numbers = vectors / torch.where(unit > 0, unit, 1)
    if torch.compiler.is_compiling():  # in pairs, since the compiler would store the codes of whole rows
        even, odd = (nearest(half, NORMAL_FLOATS) for half in pairs(numbers))
        data = packed(even | odd << 4, 8)
    else:
        data = packed(nearest(numbers, NORMAL_FLOATS), 4)
    return (unit, data) if scale is None else (data,)


@dataclass(frozen=True)
class NF4(BlockScaled):
    """Half a byte per coordinate: m times the nearest of 16 levels, where normal numbers are dense; m as of `Int8`.

        C(v)_i = m q(v_i / m),    q(u) the nearest level to u

    Biased; delta = 1 - max (b - 1) e^2 / (1 + (b - 1) u^2) for blocks of b, over the midpoints u between levels, which
    are e from both: 0.88 for b = 64. Sends 4 bits per coordinate and m per block.

    Dettmers, Pagnoni, Holtzman, Zettlemoyer 2023 (QLoRA), arXiv:2305.14314.

    When: an eighth of the bytes with a memory (`mem_sgd`, `ef21`, `choco`), where `Int4` would need no bias.

    Parameters
    ----------
    block
        Coordinates that share a scale, 64 by default; None: all of a row.

    Examples
    --------
    >>> message = NF4(block=4).compress(torch.tensor([[2.0, 0.0, -2.0, 1.1]]), WorkerRandom(0, [0]))
    >>> message.decode().tolist(), message.wire_bytes.tolist()
    ([[2.0, 0.0, -2.0, 1.1252340078353882]], [6])
    """

    block: int | None = 64

    def scaled(self, vectors: Tensor, scale: Tensor | None, random: WorkerRandom) -> CodebookMessage:
        parts = by_columns(coded, vectors, scale)
        parts = parts if scale is None else (scale, *parts)
        return CodebookMessage(parts, vectors.shape[1], vectors.dtype, NORMAL_FLOATS)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float:
        others = max(0, (d if self.block is None else min(d, self.block)) - 1)
        gaps = zip(midpoints(NORMAL_FLOATS), NORMAL_FLOATS[1:], strict=True)
        return 1 - max(others * (level - u) ** 2 / (1 + others * u**2) for u, level in gaps)

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(), cls(16), cls(None)]
