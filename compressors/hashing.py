"""SplitMix64, the hash behind every random number (Steele, Lea, Flood 2014), for Python integers and int64 tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

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
