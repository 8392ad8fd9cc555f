"""The bits of numbers; codes of any width from 0 to 32 bits, packed without gaps into the bytes of each row; and sets
of indices, nearly as short as sets can be.

Wire format of ``count`` codes of ``bits`` bits (``packed_bytes`` = ceil(count * bits / 8) bytes): first the lowest 8
bits of every code, one byte each, then the next 8, and so on; the remaining r < 8 bits follow as one little-endian
bit string, code j occupying bits j * r to (j + 1) * r. Hosts are little endian.

Sets are in the code of Elias (1974) and Fano (1971), of a fixed length. Wire format of k increasing indices
x_0 < x_1 < ... below d, l = floor(log2(d / k)): first the l lowest bits of each, packed, then a bit string of
k + floor((d - 1) / 2^l) bits, in which bit floor(x_j / 2^l) + j is 1 for every j. That is at most log2(d / k) + 2 bits
an index, half a bit above the least possible, log2 (d over k) / k, where k < d / 10. All sets take as many, so that all
messages are equally long.
"""

from __future__ import annotations

from functools import cache, reduce
from math import gcd

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from commeff.compressors.scratch import tiles

_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_LANES = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def words(vectors: Tensor) -> Tensor:
    """A view of the numbers as signed integers: negative where the sign bit is set.

    >>> words(torch.tensor([1.0, -0.0])).tolist()
    [1065353216, -2147483648]
    """
    return vectors.view(_WORDS[vectors.element_size()])


def packed_bytes(count: int, bits: int) -> int:
    """Bytes that ``count`` codes of ``bits`` bits take."""
    return (count * bits + 7) // 8


def code_bits(values: int) -> int:
    """Bits of a code that takes so many values, such as an index below d: their log2, rounded up.

    >>> code_bits(15), code_bits(16), code_bits(1), code_bits(0)
    (4, 4, 0, 0)
    """
    return max(values - 1, 0).bit_length()


def pack(codes: Tensor, bits: int) -> Tensor:
    """(w, count) non-negative integers below 2^bits as (w, packed_bytes) uint8.

    >>> pack(torch.tensor([[1, 0, 0, 0, 0, 0, 0, 0, 1]]), 1)
    tensor([[1, 1]], dtype=torch.uint8)
    >>> unpack(pack(torch.tensor([[1, 2, 3, 4, 500]]), 9), 9, 5)
    tensor([[  1,   2,   3,   4, 500]])
    """
    rows, count = codes.shape
    out = torch.empty(rows, packed_bytes(count, bits), dtype=torch.uint8, device=codes.device)
    planes, rest = divmod(bits, 8)
    for row, column in tiles(codes):
        tile, into = codes[row, column], out[row]
        for plane in range(planes):
            into[:, plane * count + column.start :][:, : tile.shape[1]] = tile >> 8 * plane if plane else tile
        if rest:
            low = (tile >> 8 * planes if planes else tile).to(torch.uint8)
            bytes_of(into[:, planes * count :], rest, column)[:] = _merge(low, rest)
    return out


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The inverse of `pack`: (w, count) codes, uint8 up to 8 bits and int64 beyond."""
    out = torch.empty(len(packed), count, dtype=torch.uint8 if bits <= 8 else torch.int64, device=packed.device)
    for rows, columns in tiles(out):
        out[rows, columns] = unpack_from(packed[rows], bits, columns, count)
    return out


def unpack_from(packed: Tensor, bits: int, columns: slice, count: int) -> Tensor:
    """The codes in ``columns`` (starting at a multiple of 8) of rows of ``count`` codes."""
    width, (planes, rest) = columns.stop - columns.start, divmod(bits, 8)
    pieces = [packed[:, plane * count + columns.start :][:, :width] for plane in range(planes)]
    if rest:
        pieces.append(_spread(bytes_of(packed[:, planes * count :], rest, columns), rest, width))
    if not pieces:
        return packed.new_zeros(len(packed), width)
    codes = pieces[0] if len(pieces) == 1 else pieces[0].long()
    for plane, piece in enumerate(pieces[1:], 1):
        codes |= piece.long() << 8 * plane
    return codes


def _merge(codes: Tensor, bits: int) -> Tensor:
    """uint8 codes below 2^bits, bits < 8, as a bit string: neighbours are merged in pairs until the bytes are full."""
    rows, width = codes.shape
    if bits == 1 and codes.device.type == "cpu":
        return torch.from_numpy(np.packbits(codes.numpy(), axis=1, bitorder="little"))
    lanes = pad(codes, (0, -width % 8)).flatten()
    stages, full_lane, filled = _merges(bits)
    for lane, used, narrow in stages:
        pairs = lanes.view(_LANES[2 * lane])
        merged = torch.sub(pairs, pairs >> lane, alpha=(1 << lane) - (1 << used))
        lanes = merged.to(_LANES[lane]) if narrow else merged
    full = lanes.view(torch.uint8).view(len(lanes), full_lane // 8)[:, :filled]
    return full.reshape(rows, -(-width // 8) * bits)[:, : packed_bytes(width, bits)]


def _spread(packed: Tensor, bits: int, width: int) -> Tensor:
    """The inverse of `_merge`: uint8 codes (w, width)."""
    if bits == 1 and packed.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(packed.numpy(), axis=1, count=width, bitorder="little"))
    stages, full_lane, filled = _merges(bits)
    whole = -(-width // 8)
    full = pad(packed, (0, whole * bits - packed.shape[1])).reshape(len(packed) * whole * bits // filled, filled)
    lanes = pad(full, (0, full_lane // 8 - filled)).flatten().view(_LANES[full_lane])
    for lane, used, _ in reversed(stages):
        pairs = lanes.to(_LANES[2 * lane])
        lanes = torch.add(pairs, pairs >> used, alpha=(1 << lane) - (1 << used)).view(_LANES[lane])
    return lanes.view(len(packed), 8 * whole)[:, :width]


@cache
def _merges(bits: int) -> tuple[tuple[tuple[int, int, bool], ...], int, int]:
    """The merges that fill whole bytes: bits of a lane, bits used of it, whether a pair fits into one lane; the bits of
    the lane that then holds a full group of codes, and the bytes of it that are full.
    """
    stages, lane, used = [], 8, bits
    while used % 8:
        narrow = 2 * used <= lane
        stages.append((lane, used, narrow))
        lane, used = lane if narrow else 2 * lane, 2 * used
    return tuple(stages), lane, used // 8


def bytes_of(data: Tensor, bits: int, columns: slice) -> Tensor:
    """The bytes of columns (from a multiple of 8 on) of rows of codes of at most 8 bits."""
    return data[:, columns.start * bits // 8 : packed_bytes(columns.stop, bits)]


def packed(codes: Tensor, bits: int) -> Tensor:
    """(r, 8m) codes below 2^bits, bits <= 8, as (r, m bits) bytes: so many codes together fill whole bytes.

    >>> packed(torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]]), 4)
    tensor([[ 33,  67, 101, 135]], dtype=torch.uint8)
    """
    if bits == 8:
        return codes.to(torch.uint8)
    if not torch.compiler.is_compiling():
        return _merge(codes.to(torch.uint8), bits)
    if codes.is_cpu and bits in (1, 4) and codes.shape[1] % 8 == 0:
        return _merge_lanes(codes.to(torch.int32).to(torch.int8).view(torch.int64), bits).view(torch.uint8)
    codes_each, bytes_each = 8 // gcd(bits, 8), bits // gcd(bits, 8)  # the least number of codes that fill whole bytes
    groups = codes.unflatten(1, (codes.shape[1] // codes_each, codes_each)).to(_word(bytes_each))
    word = reduce(torch.bitwise_or, (code << bits * k for k, code in enumerate(groups.unbind(2))))
    if bytes_each == 1:
        return word.to(torch.uint8)
    return torch.stack([word >> 8 * k & 255 for k in range(bytes_each)], 2).flatten(1).to(torch.uint8)


def _merge_lanes(lanes: Tensor, bits: int) -> Tensor:
    """`packed` of eight codes of 1 or 4 bits in an int64, for what is compiled: int8 and int32 are what it narrows an
    int64 to in all lanes of a processor at once.
    """
    if bits == 1:
        return (lanes * 0x0102040810204080 >> 56).to(torch.int8)  # bit k of the highest byte is that of byte k
    lanes = (lanes | lanes >> 4) & 0x00FF00FF00FF00FF
    lanes = (lanes | lanes >> 8) & 0x0000FFFF0000FFFF
    return (lanes | lanes >> 16).to(torch.int32)


def pairs(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """(r, c) twice: the even and the odd ones of 2c columns."""
    even, odd = vectors.unflatten(1, (vectors.shape[1] // 2, 2)).unbind(2)
    return even, odd


def unpacked(data: Tensor, bits: int) -> Tensor:
    """The inverse of `packed`, for any (r, n) bytes: (r, 8 n / bits) codes, some more if that is not whole."""
    if bits == 8:
        return data
    if not torch.compiler.is_compiling():
        return _spread(data, bits, data.shape[1] * 8 // bits)
    codes_each = 16 if bits <= 4 else 8  # that one word has: 16 fill the registers of a processor
    bytes_each = bits * codes_each // 8
    whole = -(-data.shape[1] // bytes_each)
    groups = pad(data, (0, whole * bytes_each - data.shape[1])).unflatten(1, (whole, bytes_each)).to(_word(bytes_each))
    word = reduce(torch.bitwise_or, (byte << 8 * k for k, byte in enumerate(groups.unbind(2))))
    shifts = torch.arange(0, bits * codes_each, bits, dtype=word.dtype, device=word.device)
    return (word[:, :, None] >> shifts & (1 << bits) - 1).flatten(1)


def _word(size: int) -> torch.dtype:
    return torch.int32 if size <= 4 else torch.int64


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
