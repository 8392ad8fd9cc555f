"""DRIVE and EDEN: a random rotation, then few bits for numbers that are now all alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, pi, sqrt
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from commeff.compressors.base import Compressor, Scope, wide
from commeff.compressors.codebook import looked_up, nearest
from commeff.compressors.compiled import compiled
from commeff.compressors.hashing import GOLDEN, outputs, signed
from commeff.compressors.message import Tiled
from commeff.compressors.packing import bytes_of, code_bits, packed, packed_bytes, unpacked
from commeff.compressors.random import WorkerRandom
from commeff.compressors.reductions import folded, row_norm
from commeff.compressors.scratch import tiles


@dataclass(frozen=True, eq=False)
class RotatedMessage(Tiled):
    """Blocks of b coordinates, the last filled up with zeros: a s * (H^T q), q of levels that everybody knows.

    Wire format: the key of the signs s (int64), a scale a for each block (float32; float64 for float64 vectors), then
    codes of all coordinates of all blocks (`compressors.packing`).
    """

    levels: tuple[float, ...]
    block: int

    @property
    def fused(self) -> bool:
        return False

    @property
    def grain(self) -> int:
        return self.block

    def tile(self, rows: slice, columns: slice) -> Tensor:
        keys, scales, data = (part[rows] for part in self.parts)
        first, last = columns.start // self.block, -(-columns.stop // self.block)
        covered = slice(first * self.block, last * self.block)
        bits, scale = code_bits(len(self.levels)), scales[:, first:last].reshape(-1, 1)
        data = bytes_of(data, bits, covered).reshape(len(scale), self.block * bits // 8)
        signs = random_signs(keys[:, 0], covered).reshape(len(scale), self.block // 8)
        blocks = decoded(data, signs, scale, self.levels)
        return blocks.view(len(keys), covered.stop - covered.start)[:, : columns.stop - columns.start]


@compiled
def decoded(data: Tensor, signs: Tensor, scale: Tensor, levels: tuple[float, ...]) -> Tensor:
    """(n, b) blocks from their packed codes, the bits of their signs, and scales (n, 1)."""
    q = looked_up(unpacked(data, code_bits(len(levels))), levels, scale.dtype)
    return hadamard(q, inverse=True).mul_(scale).mul_(plus_or_minus(signs, scale.dtype))


@dataclass(frozen=True)
class Eden(Compressor):
    """Blocks are rotated at random, and each number then takes the nearest of 2^bits levels.

        z = H (s * v) / |v|,   q_i the level nearest to z_i,   C(v) = a s * (H^T q)

    s are random signs, H is the Hadamard matrix of a block of b = 2^k coordinates: z is nearly normal whatever v is,
    and levels are those that lose least of a normal number. Unbiased: a = |v| / (z . q), which gives C(v) . v = |v|^2
    in every draw and |C(v) - v|^2 = |v|^2 (b |q|^2 / (z . q)^2 - 1). Else a = |v| (z . q) / (b |q|^2), the least
    squares one, |C(v) - v|^2 = |v|^2 (1 - (z . q)^2 / (b |q|^2)), delta = 1/b in the worst case.

    Over all rotations alike C is unbiased with omega = D / (1 - D), D being what the levels lose of a normal number:
    omega = 0.571, 0.133, 0.036, 0.0096 for 1, 2, 3, 4 bits, and delta = 1 - D. Signs and H are not all rotations: few
    large numbers among zeros (one pair, say) stay biased, so omega is None; `Assumed` takes the paper's at its word.
    Sends bits per coordinate of the filled-up blocks, a scale for each and the key of the signs, 8 bytes a row.

    Vargaftik et al. 2022 (EDEN), arXiv:2108.08842; Suresh et al. 2017, arXiv:1611.00429 (Hadamard rotations).

    When: one to four bits a number that average out over workers, with far less error than `QSGD`.

    Parameters
    ----------
    bits
        Bits of a coordinate, from 1 to 8.
    block
        Coordinates that are rotated together and share a scale: a power of two from 8 on, 4096 by default. A shorter
        row is one block, filled up to the next power of two from 8 on.
    unbiased
        Whether a keeps C(v) . v = |v|^2 (the default), for averages without memory; else it is the one of least error,
        which is contractive, for those with one.

    Examples
    --------
    >>> message = Eden(2).compress(torch.eye(3, 16), WorkerRandom(0, range(3)))
    >>> message.wire_bytes.tolist(), bool(message.decode().allclose(torch.eye(3, 16), atol=1e-6))    # 8 + 4 + 4
    ([16, 16, 16], True)
    """

    bits: int
    block: int = 4096
    unbiased: bool = True

    scope: ClassVar[Scope] = "whole"

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise ValueError(f"Eden: bits must lie in [1, 8], got {self.bits}")
        if self.block < 8 or self.block & (self.block - 1):
            raise ValueError(f"{type(self).__name__}: block must be a power of two from 8 on, got {self.block}")

    def compress(self, vectors: Tensor, random: WorkerRandom) -> RotatedMessage:
        (rows, d), levels, kind = vectors.shape, normal_levels(self.bits), wide(vectors.dtype)
        keys, block = random.choice_keys(), self._side(d)
        total = -(-d // block) * block
        scales = torch.empty(rows, total // block, dtype=kind, device=vectors.device)
        data = torch.empty(rows, packed_bytes(total, self.bits), dtype=torch.uint8, device=vectors.device)
        for row, column in tiles(scales.new_empty(()).expand(rows, total), grain=block):
            piece = vectors[row, column].to(kind)
            rest = column.stop - column.start - piece.shape[1]
            blocks = (pad(piece, (0, rest)) if rest else piece).reshape(-1, block)
            norm = row_norm(blocks)
            signs = random_signs(keys[row], column).reshape(len(blocks), block // 8)
            codes, *parts = coded(blocks, signs, norm, levels, self.unbiased)
            zq, *qq = (part.sum(1, keepdim=True) for part in parts)
            scale = torch.where(norm != 0, norm * (zq / (block * qq[0]) if qq else 1 / zq), norm)
            into = scales[row, column.start // block : column.stop // block], bytes_of(data[row], self.bits, column)
            for whole, part in zip(into, (scale, codes), strict=True):
                whole.copy_(part.view(whole.shape))
        return RotatedMessage((keys[:, None], scales, data), d, vectors.dtype, levels, block)

    def _side(self, d: int) -> int:
        return min(self.block, 1 << max(d - 1, 7).bit_length())

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float | None:
        return None if self.unbiased else 1 / self._side(d)

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(2), cls(4, block=16, unbiased=False)]


@dataclass(frozen=True)
class Drive(Eden):
    """One bit a coordinate after a random rotation: signs of H (s * v), and a scale a. The same as `Eden` of one bit.

        C(v) = a s * (H^T sign(z)),   z = H (s * v),    a = |v|^2 / |z|_1, or |z|_1 / b^2 of least error

    Unbiased scale: C(v) . v = |v|^2 and |C(v) - v|^2 = |v|^2 (b |v|^2 / |R v|_1^2 - 1), R = H s / sqrt(b): omega =
    pi/2 - 1 = 0.571 over all rotations alike. Else |C(v) - v|^2 = |v|^2 - |R v|_1^2 / b: delta = 2/pi = 0.637 where
    R v is normal, 1/b in the worst case. Sends 1 bit per coordinate of the filled-up blocks, a scale for each and the
    key of the signs, 8 bytes a row.

    Vargaftik et al. 2021 (DRIVE), arXiv:2105.08339.

    When: one bit a number that averages out over workers, where `ScaledSign` needs a memory.

    Parameters
    ----------
    block
        Coordinates that are rotated together and share a scale: a power of two from 8 on, 4096 by default. A shorter
        row is one block, filled up to the next power of two from 8 on.
    unbiased
        Whether a keeps C(v) . v = |v|^2 (the default); else it is the one of least error, which is contractive.

    Examples
    --------
    >>> message = Drive().compress(torch.eye(3, 16), WorkerRandom(0, range(3)))
    >>> message.wire_bytes.tolist(), bool(message.decode().allclose(torch.eye(3, 16), atol=1e-6))    # 8 + 4 + 2
    ([14, 14, 14], True)
    """

    bits: int = field(default=1, init=False, repr=False)

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(), cls(block=16, unbiased=False)]


@compiled
def coded(blocks: Tensor, signs: Tensor, norm: Tensor, levels: tuple[float, ...], unbiased: bool) -> tuple[Tensor, ...]:
    """The packed codes of (n, b) blocks, and (n, m) that add up to z . q and, unless ``unbiased``, to q . q."""
    z = hadamard(blocks / torch.where(norm > 0, norm, 1) * plus_or_minus(signs, blocks.dtype))
    codes = nearest(z, levels)
    q = looked_up(codes, levels, z.dtype)
    sums = (folded(x * q, torch.positive, torch.float64).flatten(1) for x in ([z] if unbiased else [z, q]))
    return packed(codes, code_bits(len(levels))), *sums


def hadamard(blocks: Tensor, inverse: bool = False) -> Tensor:
    """(r, b) -> (r, b): each row times a symmetric or permuted Hadamard matrix, whose entries are 1 and -1, b = 2^k.

    With ``inverse`` times that matrix transposed, which gives b times the row back. Butterflies of a block as a matrix
    of sqrt(b) columns work on its rows, then on those of the transposed matrix, so that neighbours in memory are added
    to neighbours. A row is computed number by number: it does not depend on the rows beside it.

    >>> hadamard(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    tensor([[10., -4., -2.,  0.]])
    >>> hadamard(hadamard(torch.arange(8.0)[None]), inverse=True) / 8
    tensor([[0., 1., 2., 3., 4., 5., 6., 7.]])
    """
    rows, b = blocks.shape
    height = 1 << (b.bit_length() - 1) // 2
    sides = (b // height, height) if inverse else (height, b // height)
    matrices = _butterflies(blocks.reshape(rows, *sides)).transpose(1, 2).contiguous()
    return _butterflies(matrices).view(rows, b)


def _butterflies(matrices: Tensor) -> Tensor:
    """(r, 2^k, c): columns times a Hadamard matrix, eight rows of a matrix at a time, whose sums fit into registers."""
    shape, step = matrices.shape, 1
    while step < shape[1]:
        count = min(8, shape[1] // step)
        parts = [*matrices.view(shape[0], shape[1] // (count * step), count, step, shape[2]).unbind(2)]
        half = 1
        while half < count:
            for i in (i for i in range(count) if not i & half):
                parts[i], parts[i + half] = parts[i] + parts[i + half], parts[i] - parts[i + half]
            half *= 2
        matrices, step = torch.stack(parts, 2).view(shape), step * count
    return matrices


def random_signs(keys: Tensor, columns: slice) -> Tensor:
    """(w, bytes) uint8: the bits that int64 keys determine for columns (from a multiple of 64 on).

    >>> keys = torch.tensor([5, 6])
    >>> bool((random_signs(keys, slice(0, 80))[:, 8:] == random_signs(keys, slice(64, 80))).all())
    True
    """
    first, count = keys[:, None] + signed(GOLDEN * (columns.start // 64 + 1)), -(-(columns.stop - columns.start) // 64)
    return outputs(first, count).view(torch.uint8)[:, : packed_bytes(columns.stop - columns.start, 1)]


def plus_or_minus(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """(n, 8m) of 1 and -1, which (n, m) bytes of bits say."""
    return unpacked(bits, 1).to(dtype).mul_(-2).add_(1)


@lru_cache(maxsize=8)
def normal_levels(bits: int) -> tuple[float, ...]:
    """The 2^bits levels that lose least of a standard normal number (Lloyd 1982, Max 1960), by Lloyd's iteration.

    >>> [round(level, 4) for level in normal_levels(2)]
    [-1.5104, -0.4528, 0.4528, 1.5104]
    """
    count = 1 << bits
    levels = torch.special.ndtri((torch.arange(count, dtype=torch.float64) + 0.5) / count) * sqrt(3)
    for _ in range(1000):
        middle = (levels[1:] + levels[:-1]) / 2
        edges = torch.cat([middle.new_tensor([-inf]), middle, middle.new_tensor([inf])])
        densities = edges.square().div(-2).exp_().div_(sqrt(2 * pi))
        means = -densities.diff() / torch.special.ndtr(edges).diff()
        before, levels = levels, (means - means.flip(0)) / 2
        if float((levels - before).abs().max()) < 1e-12:
            break
    return tuple(levels.tolist())
