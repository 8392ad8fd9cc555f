"""A compressor whose messages depend on values: as many numbers as are larger than a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from commeff.compressors import Compressor, Message, Scope, WorkerRandom


@dataclass(frozen=True, eq=False)
class Largest(Message):
    """The first columns of a vector. Wire format: as many numbers as the longest row needs."""

    def decode(self) -> Tensor:
        (values,) = self.parts
        out = torch.zeros(len(values), self.d, dtype=self.dtype, device=values.device)
        out[:, : values.shape[1]] = values
        return out


@dataclass(frozen=True)
class UpToThreshold(Compressor):
    """All columns up to the last one whose magnitude is above `value`."""

    value: float = 0.5
    data_dependent: ClassVar[bool] = True

    @property
    def scope(self) -> Scope:
        return "whole"

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        d = vectors.shape[1]
        if vectors.is_meta:
            return Largest((vectors,), d, vectors.dtype)
        above = (vectors.abs() > self.value).any(0).nonzero()
        return Largest((vectors[:, : int(above.max()) + 1 if len(above) else 0],), d, vectors.dtype)

    def omega(self, d: int) -> float | None:
        return None

    def delta(self, d: int) -> float | None:
        return None
