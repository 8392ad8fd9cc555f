"""A rotation that makes numbers of any vector look normal: signs at random, then a Hadamard transform of each block."""

from __future__ import annotations

from functools import lru_cache
from math import inf, pi, sqrt

import torch
from torch import Tensor

from commeff.compressors.hashing import GOLDEN, mixed, signed
from commeff.compressors.packing import unpack_from


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
    """(r, 2^k, c): columns times a Hadamard matrix, as a new tensor unless k = 0."""
    rows, height, width = matrices.shape
    source, step = matrices, 1
    spare = [torch.empty_like(matrices) for _ in range(min(2, height.bit_length() - 1))]
    while step < height:
        pairs, sums = (t.view(rows, height // (2 * step), 2, step, width) for t in (source, spare[0]))
        torch.add(pairs[:, :, 0], pairs[:, :, 1], out=sums[:, :, 0])
        torch.sub(pairs[:, :, 0], pairs[:, :, 1], out=sums[:, :, 1])
        source, spare = spare[0], spare[::-1]
        step *= 2
    return source


def random_signs(keys: Tensor, start: int, width: int, dtype: torch.dtype) -> Tensor:
    """(w, width) of 1 and -1 that int64 keys determine, from column ``start`` (a multiple of 64) on.

    >>> keys = torch.tensor([5, 6])
    >>> bool((random_signs(keys, 0, 80, torch.float32)[:, 64:] == random_signs(keys, 64, 16, torch.float32)).all())
    True
    """
    counters = torch.arange(start // 64 + 1, (start + width + 63) // 64 + 1, device=keys.device) * signed(GOLDEN)
    words = mixed(keys[:, None] + counters)
    return unpack_from(words.view(torch.uint8), 1, slice(0, width), width).to(dtype).mul_(-2).add_(1)


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
        means, before = (means - means.flip(0)) / 2, levels
        levels = means
        if float((levels - before).abs().max()) < 1e-12:
            break
    return tuple(levels.tolist())
