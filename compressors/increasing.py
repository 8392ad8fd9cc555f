"""Sets of indices, nearly as short as sets can be: the code of Elias (1974) and Fano (1971), of a fixed length.

Wire format of k increasing indices x_0 < x_1 < ... below d, l = floor(log2(d / k)): first the l lowest bits of each
(`compressors.packing`), then a bit string of k + floor((d - 1) / 2^l) bits, in which bit floor(x_j / 2^l) + j is 1 for
every j. That is at most log2(d / k) + 2 bits an index, half a bit above the least possible, log2 (d over k) / k, where
k < d / 10. All sets take as many, so that all messages are equally long.
"""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.compressors.packing import pack, packed_bytes, unpack


def _low_bits(d: int, k: int) -> int:
    return max(d // max(k, 1), 1).bit_length() - 1


def _high_bits(d: int, k: int) -> int:
    return k + (max(d - 1, 0) >> _low_bits(d, k))


def increasing_bytes(d: int, k: int) -> int:
    """Bytes that k increasing indices below d take.

    >>> increasing_bytes(1_000_000, 10_000), packed_bytes(10_000, 20)
    (10703, 25000)
    """
    return packed_bytes(k, _low_bits(d, k)) + packed_bytes(_high_bits(d, k), 1)


def encode_increasing(indices: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """(w, k) increasing indices below d as the two parts of their code.

    >>> encode_increasing(torch.tensor([[1, 2, 13]]), 16)
    (tensor([[25]], dtype=torch.uint8), tensor([[35]], dtype=torch.uint8))
    >>> decode_increasing(*encode_increasing(torch.tensor([[1, 2, 13]]), 16), 16, 3)
    tensor([[ 1,  2, 13]])
    """
    rows, k = indices.shape
    low = _low_bits(d, k)
    bits = torch.zeros(rows, _high_bits(d, k), dtype=torch.uint8, device=indices.device)
    bits.scatter_(1, (indices >> low) + torch.arange(k, device=indices.device), 1)
    return pack(indices & (1 << low) - 1, low), pack(bits, 1)


def decode_increasing(lows: Tensor, highs: Tensor, d: int, k: int) -> Tensor:
    """(w, k) int64: the indices."""
    low = _low_bits(d, k)
    if lows.is_meta:
        return lows.new_empty(len(lows), k, dtype=torch.int64)
    places = unpack(highs, 1, _high_bits(d, k)).nonzero()[:, 1].view(len(highs), k)
    return (places - torch.arange(k, device=highs.device)) << low | unpack(lows, low, k).long()
