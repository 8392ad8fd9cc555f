"""Packed codes: the bytes are the documented bit string, and reading inverts writing."""

from __future__ import annotations

from math import lgamma, log, log2

import pytest
import torch

from commeff.compressors import TopK, WorkerRandom, pack, packed_bytes, unpack
from commeff.compressors.packing import (
    code_bits,
    decode_increasing,
    encode_increasing,
    increasing_bytes,
    unpack_from,
)


def documented(codes: list[int], bits: int) -> list[int]:
    """The wire format, bit by bit, with Python integers."""
    planes, rest = divmod(bits, 8)
    data = [code >> 8 * plane & 255 for plane in range(planes) for code in codes]
    string = sum((code >> 8 * planes) << j * rest for j, code in enumerate(codes))
    return data + list(string.to_bytes((len(codes) * rest + 7) // 8, "little"))


@pytest.mark.parametrize("bits", range(33))
def test_bytes_are_the_documented_ones(bits):
    generator = torch.Generator().manual_seed(bits)
    for rows, count in ((0, 5), (1, 0), (1, 1), (3, 1), (2, 7), (3, 8), (2, 31)):
        codes = torch.randint(0, 1 << bits, (rows, count), generator=generator)
        packed = pack(codes, bits)
        assert packed.shape == (rows, packed_bytes(count, bits))
        assert packed.tolist() == [documented(row, bits) for row in codes.tolist()]
        assert torch.equal(unpack(packed, bits, count).long(), codes)


@pytest.mark.parametrize("bits", [1, 3, 4, 8, 9, 24])
def test_long_rows_and_pieces_of_them(bits):
    count = 300_001
    codes = torch.randint(0, 1 << bits, (2, count), generator=torch.Generator().manual_seed(0))
    packed = pack(codes, bits)
    assert torch.equal(unpack(packed, bits, count).long(), codes)
    assert torch.equal(unpack_from(packed, bits, slice(1000, 1003), count).long(), codes[:, 1000:1003])


def least_bits(d: int, k: int) -> float:
    """log2 of the number of sets of k indices below d: the ideal entropy of a set of which nothing else is known."""
    return (lgamma(d + 1) - lgamma(k + 1) - lgamma(d - k + 1)) / log(2)


@pytest.mark.parametrize(("d", "k"), [(1, 0), (1, 1), (16, 3), (16, 16), (100, 1), (1000, 37), (4097, 500)])
def test_coded_indices_are_the_documented_bits_and_are_read_again(d, k):
    ways = [torch.arange(k), torch.arange(d - k, d), torch.randperm(d, generator=torch.Generator().manual_seed(0))[:k]]
    indices = torch.stack([way.sort().values for way in ways])
    lows, highs = encode_increasing(indices, d)
    low = int(log2(d / max(k, 1)))
    for row, set_ in enumerate(indices.tolist()):
        assert lows[row].tolist() == documented([x % (1 << low) for x in set_], low)
        string = sum(1 << (x >> low) + j for j, x in enumerate(set_))
        assert highs[row].tolist() == list(string.to_bytes((k + ((d - 1) >> low) + 7) // 8, "little"))
    assert torch.equal(decode_increasing(lows, highs, d, k), indices)
    assert lows.shape[1] + highs.shape[1] == increasing_bytes(d, k)


@pytest.mark.parametrize(("d", "k"), [(10**6, 10**5), (10**6, 10**4), (10**6, 1000), (10**9, 10**6)])
def test_coded_indices_are_half_a_bit_above_the_entropy_of_a_set(d, k):
    real, ideal = 8 * increasing_bytes(d, k), least_bits(d, k)
    assert ideal < real < ideal + 0.57 * k < k * code_bits(d) / 1.6


def test_coded_top_k_is_top_k_in_fewer_bytes_where_that_pays():
    vectors, random = WorkerRandom(0, range(3)).normal(5000), WorkerRandom(0, range(3))
    for k in (1, 50, 2500, 5000):
        plain, coded = (TopK(k=k, coded=coded).compress(vectors, random) for coded in (False, True))
        assert torch.equal(plain.decode(), coded.decode())
        assert torch.equal(plain.indices(), coded.indices())
        index = min(packed_bytes(k, code_bits(5000)), increasing_bytes(5000, k))
        assert coded.row_bytes == 4 * k + index <= plain.row_bytes
