"""Levels of which most are 0: where the others are, and what they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from commeff.compressors.base import Compressor, Scope
from commeff.compressors.packing import code_bits, decode_increasing, encode_increasing, pack, unpack
from commeff.compressors.quantised import QSGD, LevelsMessage, TernGrad
from commeff.compressors.random import WorkerRandom
from commeff.compressors.sparse import VariableSparse, left_aligned


@dataclass(frozen=True, eq=False)
class CodedMessage(VariableSparse):
    """Each coordinate one of the 2s + 1 multiples of scale/s between -scale and scale, most of them 0.

    Wire format: the scale, k increasing indices below d + k (`compressors.packing`), then k codes of ceil(log2(2s))
    bits (`compressors.packing`): m - 1 for m scale / s, s + m - 1 for minus as much. Indices from d on are of rows that
    have fewer than k and mean nothing. The receiver knows k: workers agree on it.
    """

    levels: int
    k: int

    @property
    def lengths(self) -> tuple[int, ...]:
        return (self.k,)

    def coordinates(self) -> tuple[Tensor, Tensor]:
        scale, indices, codes = self.parts[0], self._indices(), self._codes().long()
        magnitudes = codes % self.levels + 1
        values = torch.where(codes < self.levels, magnitudes, -magnitudes).to(scale.dtype) * (scale / self.levels)
        valid = indices < self.d
        return indices.where(valid, 0), values.where(valid, 0)

    def counts(self) -> Tensor:
        return (self._indices() < self.d).sum(1)

    def of_length(self, k: int) -> Self:
        columns, least, counts = torch.arange(k, device=self.parts[0].device), min(k, self.k), self.counts()[:, None]
        indices = self.d + columns - counts
        codes = torch.zeros_like(indices)
        indices[:, :least] = self._indices()[:, :least].where(columns[:least] < counts, indices[:, :least])
        codes[:, :least] = self._codes()[:, :least]
        return replace(self, parts=_parts(self.parts[0], indices, codes, self.d, self.levels), k=k)

    def _indices(self) -> Tensor:
        return decode_increasing(self.parts[1], self.parts[2], self.d + self.k, self.k)

    def _codes(self) -> Tensor:
        return unpack(self.parts[3], code_bits(2 * self.levels), self.k)


def _parts(scale: Tensor, indices: Tensor, codes: Tensor, d: int, levels: int) -> tuple[Tensor, ...]:
    positions = encode_increasing(indices, d + indices.shape[1])
    return (scale, *positions, pack(codes, code_bits(2 * levels)))


@dataclass(frozen=True)
class Coded(Compressor):
    """The levels of QSGD or TernGrad, as the set of those that are not 0 and what these are.

    What is decoded is what the compressor alone gives, bit by bit; only bytes differ. k levels that are not 0 take
    k (log2(d/k + 1) + 2 + ceil(log2(2s))) bits at most, and k depends on values: all workers first tell each other
    theirs, 8 bytes in a round of its own, and send as many as the one that has most. A profile can only say the most,
    k = d, which is more than packed levels take. It pays where most levels are 0; of 10^6 normal numbers one takes

    ===================  ======  =====  =======
    bits                 packed  coded  entropy
    ===================  ======  =====  =======
    QSGD(1)              2       0.010  0.010
    QSGD(4)              4       0.042  0.034
    TernGrad()           2       0.96   0.82
    QSGD(4), 512 a time  4.06    1.53   0.73
    ===================  ======  =====  =======

    where the entropy is that of the levels, had each been drawn alone, the least that any code of them takes; of short
    blocks all pay for the one that has most.

    Alistarh et al. 2017 (QSGD, which codes so by Elias' numbers), arXiv:1610.02132; Elias 1974, Fano 1971.

    When: few levels of long vectors, where what is sent is mostly 0.

    Parameters
    ----------
    compressor
        QSGD without a bucket, or TernGrad; for buckets ``Blockwise(Coded(QSGD(4)), 512)``.

    Examples
    --------
    >>> vectors = torch.zeros(1, 1000).index_fill(1, torch.tensor([5, 70]), 3.0)
    >>> sent = [C.compress(vectors, WorkerRandom(0, [0])).row_bytes for C in (TernGrad(), Coded(TernGrad()))]
    >>> sent            # a scale of 4 bytes, and 1000 levels of 2 bits; or 2 indices of 10 bits and 2 signs
    [254, 8]
    """

    compressor: QSGD

    scope: ClassVar[Scope] = "whole"
    data_dependent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.compressor, QSGD) or self.compressor.bucket is not None:
            raise ValueError(
                f"Coded: compressor must be QSGD without a bucket, or TernGrad, got {self.compressor}: their levels "
                "are what is coded; for buckets give Blockwise(Coded(QSGD(4)), 512)"
            )

    def compress(self, vectors: Tensor, random: WorkerRandom) -> CodedMessage:
        message, (rows, d) = self.compressor.compress(vectors, random), vectors.shape
        assert isinstance(message, LevelsMessage)
        (scale, packed), s = message.parts, message.levels
        if vectors.is_meta:
            indices, codes = (packed.new_empty(rows, d, dtype=torch.int64) for _ in range(2))
        else:
            levels = unpack(packed, code_bits(2 * s + 1), d)
            counts, row, column, place = left_aligned(levels != s)
            longest = int(counts.max()) if rows else 0
            indices = d + torch.arange(longest, device=row.device) - counts[:, None]
            codes = torch.zeros_like(indices)
            values = levels[row, column].long() - s
            indices[row, place], codes[row, place] = column, values.abs() - 1 + s * (values < 0)
        parts = _parts(scale, indices, codes, d, s)
        return CodedMessage(parts, d, vectors.dtype, s, indices.shape[1])

    def omega(self, d: int) -> float | None:
        return self.compressor.omega(d)

    def delta(self, d: int) -> float | None:
        return self.compressor.delta(d)

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(QSGD(3)), cls(TernGrad())]
