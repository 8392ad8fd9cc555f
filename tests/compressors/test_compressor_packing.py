"""Packed codes: the bytes are the documented bit string, and reading inverts writing."""

from __future__ import annotations

import pytest
import torch

from commeff.compressors import pack, packed_bytes, unpack
from commeff.compressors.packing import pack_into, unpack_from


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
    again = torch.empty_like(packed)
    for start in (0, 160_000):
        pack_into(again, codes[:, start : start + 160_000], bits, start, count)
    assert torch.equal(again, packed)
