"""A compressor with its own wire format: one bit per sign, and one magnitude."""

from dataclasses import dataclass

import torch

from commeff.compressors import Compressor, Message, pack, unpack


@dataclass(frozen=True, eq=False)
class Signs(Message):
    """Wire format: d bits, then the magnitude in the dtype of the vectors."""

    def decode(self):
        bits, magnitude = self.parts
        return torch.where(unpack(bits, 1, self.d).bool(), magnitude, -magnitude)


@dataclass(frozen=True)
class MeanSign(Compressor):
    """`share` mean|v| sign(v). With share 1 the error is the smallest possible for signs."""

    share: float = 1.0

    scope = "whole"

    def compress(self, vectors, random):
        magnitude = self.share * vectors.abs().sum(1, keepdim=True) / max(vectors.shape[1], 1)
        return Signs((pack(vectors >= 0, 1), magnitude), vectors.shape[1], vectors.dtype)

    def omega(self, d):
        return None

    def delta(self, d):
        return self.share * (2 - self.share) / max(d, 1)
