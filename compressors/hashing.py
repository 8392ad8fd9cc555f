"""SplitMix64, the hash behind every random number (Steele, Lea, Flood 2014), for Python integers and int64 tensors; and
k distinct indices out of d, uniformly, from one 64-bit key per row, which lets a receiver repeat the choice.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from commeff.compressors.compiled import compiled
from commeff.compressors.packing import pairs
from commeff.compressors.scratch import tiles

GOLDEN = 0x9E3779B97F4A7C15
LANES = 16  # numbers that a processor computes at a time
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


def mixed(words: Tensor) -> Tensor:
    """`mix` of every int64, as a new tensor. NumPy has a faster 64-bit product than eager torch on a CPU.

    >>> mixed(torch.tensor([signed(GOLDEN)])).item() == signed(mix(GOLDEN))
    True
    """
    plain = words.is_cpu and words.numel() and not torch.compiler.is_compiling()  # without numbers NumPy has no strides
    return _mix_numpy(words) if plain else _mix_torch(words)


def _mix_torch(words: Tensor) -> Tensor:
    """Torch shifts int64 arithmetically; the masks clear the copies of the sign."""
    for shift, factor in _ROUNDS:
        words = (words ^ words >> shift & _WORD >> shift) * signed(factor)
    return words ^ words >> _LAST & _WORD >> _LAST


def _mix_numpy(words: Tensor) -> Tensor:
    numbers = words.numpy().view(np.uint64)
    for shift, factor in _ROUNDS:
        numbers = (numbers ^ numbers >> np.uint64(shift)) * np.uint64(factor)
    return torch.from_numpy((numbers ^ numbers >> np.uint64(_LAST)).view(np.int64))


def outputs(states: Tensor, count: int) -> Tensor:
    """(..., count) int64: `mixed` of states (..., 1) and of those that follow them, GOLDEN apart."""
    return _in_lanes(states, count).flatten(-2)[..., :count]


def _in_lanes(states: Tensor, count: int, twice: bool = False) -> Tensor:
    """(..., n, LANES), at least ``count``, each ``twice`` or once: a processor adds to all of its lanes at once, but
    counts them one by one.
    """
    numbers = torch.arange(-(-count // LANES), device=states.device) & _WORD >> 1  # a compiled index has 64 bits
    lanes = (torch.arange(LANES, device=states.device) >> twice) * signed(GOLDEN)
    return mixed((states + numbers * signed(GOLDEN * (LANES >> twice)))[..., None] + lanes)


def halves(source: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(r, count) int32 twice: the bits of even columns, and of odd ones, of `WorkerRandom.source`."""
    if source.dtype == torch.int32:
        return pairs(source)
    words = outputs(source, count)
    return words.to(torch.int32), (words >> 32).to(torch.int32)


def bits_of(source: Tensor, columns: int) -> Tensor:
    """(r, columns) int32: the same, column by column."""
    if source.dtype == torch.int32:
        return source
    if not torch.compiler.is_compiling():
        return outputs(source, columns // 2).view(torch.int32)
    words = _in_lanes(source, columns, twice=True)  # the compiler has no view of one integer as two
    words = words >> torch.tensor([0, 32], device=source.device).repeat(LANES // 2)
    return words.to(torch.int32).flatten(-2)[..., :columns]


def uniform(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers on [0, 1) of 32 bits each: multiples of 2^-24 in float32, the same with 8 more digits in float64."""
    digits = 24 if dtype == torch.float32 else 32
    return (bits >> 32 - digits).to(dtype).mul_(2.0**-digits).add_(0.5)


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
        chosen[rows, columns] = permuted(points, subkeys[:, rows, None], bits)
    row, column = (chosen >= d).nonzero(as_tuple=True)
    while len(row):
        images = _feistel(chosen[row, column], subkeys[:, row], bits)
        chosen[row, column] = images
        outside = images >= d
        row, column = row[outside], column[outside]
    return chosen


@compiled
def permuted(points: Tensor, subkeys: Tensor, bits: int) -> Tensor:
    """`_feistel`, which may be compiled: of as many points as the settings say, where cycle walking has any number."""
    return _feistel(points, subkeys, bits)


def _feistel(points: Tensor, subkeys: Tensor, bits: int) -> Tensor:
    """A permutation of [0, 2^bits): each round replaces (left, right) by (right, left xor hash(right))."""
    widths = bits // 2, bits - bits // 2
    left, right = points >> widths[1], points & (1 << widths[1]) - 1
    for number, subkey in enumerate(subkeys):
        noise = mixed(right ^ subkey) & (1 << widths[number % 2]) - 1
        left, right = right, noise ^ left
    return left << widths[1] | right
