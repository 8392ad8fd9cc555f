"""k distinct indices out of d, uniformly, from one 64-bit key per row, which lets a receiver repeat the choice."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.compressors.hashing import GOLDEN, mix_, mixed, signed
from commeff.compressors.scratch import tiles

RANKED = 1 << 10
ROUNDS = 8


def choose(keys: Tensor, d: int, k: int) -> Tensor:
    """(w, k) int64: for each int64 key, k distinct indices in [0, d), uniform without replacement, in random order.

    Up to d = 1024 the indices are ranked by a hash of (key, index). Beyond, a Feistel network permutes [0, 2^b) with
    2^b >= d and is evaluated at 0 ... k-1; images outside [0, d) are permuted until they fall inside (cycle walking;
    Black, Rogaway 2002). The work is O(k). Networks on fewer than about 2^5 points are visibly not uniform, hence the
    ranking.

    >>> choose(torch.tensor([1, 2]), 5, 5).sort(1).values
    tensor([[0, 1, 2, 3, 4],
            [0, 1, 2, 3, 4]])
    >>> bool((choose(torch.tensor([7]), 5000, 20) == choose(torch.tensor([7]), 5000, 300)[:, :20]).all())
    True
    """
    if not 0 <= k <= d:
        raise ValueError(f"k must lie in [0, d] = [0, {d}], got {k}: the indices are distinct")
    if keys.is_meta:
        return keys.new_empty(len(keys), k)
    if d <= RANKED:
        counters = torch.arange(1, d + 1, device=keys.device) * signed(GOLDEN)
        return mixed(keys[:, None] + counters).argsort(1)[:, :k]
    counters = torch.arange(1, ROUNDS + 1, device=keys.device) * signed(GOLDEN)
    subkeys, bits = mixed(keys + counters[:, None]), (d - 1).bit_length()
    chosen = torch.empty(len(keys), k, dtype=torch.int64, device=keys.device)
    for rows, columns in tiles(chosen):
        points = torch.arange(columns.start, columns.stop, device=keys.device)
        chosen[rows, columns] = _feistel(points, subkeys[:, rows, None], bits)
    row, column = (chosen >= d).nonzero(as_tuple=True)
    while len(row):
        images = _feistel(chosen[row, column], subkeys[:, row], bits)
        chosen[row, column] = images
        outside = images >= d
        row, column = row[outside], column[outside]
    return chosen


def _feistel(points: Tensor, subkeys: Tensor, bits: int) -> Tensor:
    """A permutation of [0, 2^bits): each round replaces (left, right) by (right, left xor hash(right))."""
    widths = bits // 2, bits - bits // 2
    left, right = points >> widths[1], points & (1 << widths[1]) - 1
    for number, subkey in enumerate(subkeys):
        noise = right ^ subkey
        mix_(noise, torch.empty_like(noise)).bitwise_and_((1 << widths[number % 2]) - 1)
        left, right = right, noise.bitwise_xor_(left)
    return left << widths[1] | right
