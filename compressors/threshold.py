"""All coordinates above a value, however many they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from commeff.compressors.base import Compressor, Scope
from commeff.compressors.packing import code_bits, pack, unpack
from commeff.compressors.random import WorkerRandom
from commeff.compressors.sparse import VariableSparse, left_aligned


@dataclass(frozen=True, eq=False)
class AboveMessage(VariableSparse):
    """Some coordinates of each row, as many as the longest row needs.

    Wire format: k increasing indices of ceil(log2 d) bits (`compressors.packing`), then the k values. Shorter rows are
    filled up with index 0 and value 0, which add nothing. The receiver knows k: workers agree on it.
    """

    @property
    def lengths(self) -> tuple[int, ...]:
        return (self.parts[1].shape[1],)

    def coordinates(self) -> tuple[Tensor, Tensor]:
        return unpack(self.parts[0], code_bits(self.d), self.lengths[0]).long(), self.parts[1]

    def counts(self) -> Tensor:
        return (self.parts[1] != 0).sum(1)

    def of_length(self, k: int) -> Self:
        indices, values = (pad(part, (0, k - self.lengths[0])) for part in self.coordinates())
        return self.with_parts([pack(indices, code_bits(self.d)), values])


@dataclass(frozen=True)
class Threshold(Compressor):
    """The coordinates of at least ``value`` in magnitude, as they are; the others 0. NaN is kept.

        C(v)_i = v_i where |v_i| >= value, else 0

    |C(v) - v|^2 = sum of the squares below, at most d value^2 whatever v is: no share of |v|^2, but a memory (error
    feedback) stays as bounded. Sends k values in the dtype of v and k packed indices, and k depends on values: all
    workers first tell each other theirs, 8 bytes in a round of its own, and send as many as the one that has most;
    that is billed, for it travels. A profile can only say the most that may be sent, k = d.

    Dutta et al. 2020, arXiv:1911.08250; Sahu et al. 2021 (the memory), arXiv:2108.00951.

    When: what matters is above a known size, and quiet steps should cost nothing; with a memory.

    Parameters
    ----------
    value
        The smallest magnitude that is sent, above 0, in the units of what is compressed.

    Examples
    --------
    >>> message = Threshold(1.5).compress(torch.tensor([[1.0, -3.0, 2.0, 0.0]]), WorkerRandom(0, [0]))
    >>> message.decode().tolist(), message.wire_bytes.tolist()
    ([[0.0, -3.0, 2.0, 0.0]], [9])
    """

    value: float

    scope: ClassVar[Scope] = "coordinate"
    data_dependent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.value > 0 and isfinite(self.value)):
            raise ValueError(f"Threshold: value must be a number above 0, got {self.value}; to send all give Dense()")

    def compress(self, vectors: Tensor, random: WorkerRandom) -> AboveMessage:
        rows, d = vectors.shape
        if vectors.is_meta:
            indices, values = vectors.new_empty(rows, d, dtype=torch.int64), vectors.contiguous()
        else:
            counts, row, column, place = left_aligned(~(vectors.abs() < self.value))
            longest = int(counts.max()) if rows else 0
            indices, values = row.new_zeros(rows, longest), vectors.new_zeros(rows, longest)
            indices[row, place], values[row, place] = column, vectors[row, column]
        return AboveMessage((pack(indices, code_bits(d)), values), d, vectors.dtype)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float | None:
        return None

    def absolute(self, d: int) -> float:
        return d * self.value**2

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(0.7)]
