"""SplitMix64, the hash behind every random number (Steele, Lea, Flood 2014), for Python integers and int64 tensors; and
k distinct indices out of d, uniformly, from one 64-bit key per row, which lets a receiver repeat the choice.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from commeff.compressors.scratch import tiles

GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST = 31


def signed(number: int) -> int:
    """The int64 that has the same low 64 bits.

    >>> signed(2**64 - 1)
    -1
    """
    number &= _WORD
    return number - (1 << 64) if number >> 63 else number


def mix(number: int) -> int:
    """The output function of SplitMix64: a bijection of 64-bit words that turns counters into noise.

    >>> hex(mix(GOLDEN)), hex(mix(2 * GOLDEN))         # the reference generator's first two outputs for seed 0
    ('0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4')
    """
    number &= _WORD
    for shift, factor in _ROUNDS:
        number = (number ^ number >> shift) * factor & _WORD
    return number ^ number >> _LAST


def mix_(words: Tensor, scratch: Tensor) -> Tensor:
    """`mix` of every int64, in place; ``scratch`` is a tensor of the same shape.

    Both versions give the same bits. NumPy has unsigned shifts and a faster 64-bit product than torch on a CPU.
    """
    if words.device.type == "cpu":
        _mix_numpy(words.numpy().view(np.uint64), scratch.numpy().view(np.uint64))
    elif not words.is_meta:
        _mix_torch(words, scratch)
    return words


def mixed(words: Tensor) -> Tensor:
    """`mix` of every int64, as a new tensor.

    >>> mixed(torch.tensor([signed(GOLDEN)])).item() == signed(mix(GOLDEN))
    True
    """
    return mix_(
        words.clone(memory_format=torch.contiguous_format),
        torch.empty_like(words, memory_format=torch.contiguous_format),
    )


def _mix_torch(words: Tensor, scratch: Tensor) -> None:
    for shift, factor in _ROUNDS:
        _fold(words, shift, scratch)
        words.mul_(signed(factor))
    _fold(words, _LAST, scratch)


def _fold(words: Tensor, shift: int, scratch: Tensor) -> None:
    """words ^= words >>> shift. Torch shifts int64 arithmetically; the mask clears the copies of the sign."""
    torch.bitwise_right_shift(words, shift, out=scratch)
    words.bitwise_xor_(scratch.bitwise_and_(_WORD >> shift))


def _mix_numpy(words: np.ndarray, scratch: np.ndarray) -> None:
    for shift, factor in _ROUNDS:
        np.bitwise_xor(words, np.right_shift(words, np.uint64(shift), out=scratch), out=words)
        np.multiply(words, np.uint64(factor), out=words)
    np.bitwise_xor(words, np.right_shift(words, np.uint64(_LAST), out=scratch), out=words)


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
