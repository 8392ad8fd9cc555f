"""Compressors that break a law, each in its own way; test_cli_plugins.py holds what must be said."""

from dataclasses import dataclass

import torch

from commeff.compressors import Compressor, Dense, DenseMessage, RandomK, ScaledSign, TopK

_KEPT: dict = {}
_CALLS: list = []


@dataclass(frozen=True)
class _Honest(Compressor):
    """Dense, as the healthy part of the wrong ones."""

    scope = "coordinate"

    def compress(self, vectors, random):
        return Dense().compress(vectors, random)

    def omega(self, d):
        return 0.0

    def delta(self, d):
        return 1.0


@dataclass(frozen=True)
class Biased(_Honest):
    """Shrinks every coordinate, and claims to be unbiased."""

    def compress(self, vectors, random):
        return Dense().compress(0.9 * vectors, random)

    def omega(self, d):
        return 0.5

    def delta(self, d):
        return 0.5


@dataclass(frozen=True, eq=False)
class _Cheap(DenseMessage):
    """Bills a bit for each coordinate."""

    @property
    def row_bytes(self):
        return (self.d + 7) // 8


@dataclass(frozen=True)
class LiesAboutRowBytes(_Honest):
    """Sends numbers, bills bits."""

    def compress(self, vectors, random):
        return _Cheap(Dense().compress(vectors, random).parts, vectors.shape[1], vectors.dtype)


@dataclass(frozen=True, eq=False)
class _Free(DenseMessage):
    """Bills nothing."""

    @property
    def wire_bytes(self):
        return torch.zeros(self.rows, dtype=torch.int64)


@dataclass(frozen=True)
class LiesAboutWireBytes(_Honest):
    """Sends numbers, bills nothing."""

    def compress(self, vectors, random):
        return _Free(Dense().compress(vectors, random).parts, vectors.shape[1], vectors.dtype)


@dataclass(frozen=True, eq=False)
class _Secret(DenseMessage):
    """Its scales do not travel."""

    scale: torch.Tensor

    def decode(self):
        return self.parts[0] * self.scale


@dataclass(frozen=True)
class HidesItsScale(_Honest):
    """A tensor outside parts."""

    scope = "whole"

    def compress(self, vectors, random):
        scale = vectors.abs().sum(1, keepdim=True) + 1
        return _Secret((vectors / scale,), vectors.shape[1], vectors.dtype, scale)

    def delta(self, d):
        return 0.9

    def omega(self, d):
        return None


@dataclass(frozen=True, eq=False)
class _Signs(DenseMessage):
    """One byte for each sign."""

    @property
    def summable(self):
        return False

    def decode(self):
        return torch.where(self.parts[0], 1.0, -1.0).to(self.dtype)


@dataclass(frozen=True)
class UnpackedSigns(_Honest):
    """Truth values travel as bytes."""

    def compress(self, vectors, random):
        return _Signs((vectors > 0,), vectors.shape[1], vectors.dtype)

    def omega(self, d):
        return None

    def delta(self, d):
        return None


@dataclass(frozen=True)
class CountsCalls(_Honest):
    """Writes into itself although it is frozen."""

    def compress(self, vectors, random):
        object.__setattr__(self, "calls", getattr(self, "calls", 0) + 1)
        return Dense().compress(vectors, random)


@dataclass(frozen=True)
class RemembersInAList(_Honest):
    """Every second call sends something else."""

    seen = []  # noqa: RUF012

    def compress(self, vectors, random):
        self.seen.append(len(vectors))
        return Dense().compress(vectors * (1 + len(self.seen) % 2), random)


@dataclass(frozen=True)
class RemembersInTheModule(_Honest):
    """Sends less with every call."""

    def compress(self, vectors, random):
        _CALLS.append(1)
        return Dense().compress(vectors / len(_CALLS), random)


@dataclass(frozen=True)
class KeepsItsFirstMask(_Honest):
    """The coordinates of the first vectors that it ever saw are those that it sends ever after."""

    scope = "whole"

    def compress(self, vectors, random):
        d = vectors.shape[1]
        if d not in _KEPT and vectors.numel():
            _KEPT[d] = vectors.abs().sum(0) >= vectors.abs().sum(0).median()
        return Dense().compress(vectors * _KEPT.get(d, 1), random)

    def omega(self, d):
        return None

    def delta(self, d):
        return None


@dataclass(frozen=True)
class LeaksRows(_Honest):
    """Scales by a norm over all rows."""

    scope = "whole"

    def compress(self, vectors, random):
        norm = vectors.norm() + 1
        return Dense().compress(vectors * (norm / (norm + 1)), random)

    def omega(self, d):
        return None

    def delta(self, d):
        return 0.5


@dataclass(frozen=True)
class ClaimsTooMuch(_Honest):
    """A tenth of the coordinates, and nine tenths of the square."""

    scope = "whole"

    def compress(self, vectors, random):
        return TopK(ratio=0.1).compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return 0.9


@dataclass(frozen=True)
class FitsOneWidth(_Honest):
    """Signs with the delta that they have at 40 coordinates."""

    scope = "whole"

    def compress(self, vectors, random):
        return ScaledSign().compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return 1 / 40


@dataclass(frozen=True)
class DrawsGlobally(_Honest):
    """Torch's own generator in place of the one it is given."""

    def compress(self, vectors, random):
        return Dense().compress(2 * vectors * (torch.rand_like(vectors) < 0.5), random)

    def omega(self, d):
        return 1.0

    def delta(self, d):
        return None


@dataclass(frozen=True)
class NeedsTheWhole(_Honest):
    """The largest coordinates of a block are not those of the vector."""

    scope = "coordinate"

    def compress(self, vectors, random):
        return TopK(ratio=0.5).compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return 0.5


@dataclass(frozen=True)
class WrongTwice(_Honest):
    """Biased, and its scope is too fine: both have to be said."""

    def compress(self, vectors, random):
        return TopK(ratio=0.5).compress(vectors, random)

    def omega(self, d):
        return 1.0

    def delta(self, d):
        return 0.5


class NoDataclass(Compressor):
    """Nothing above the class."""

    scope = "coordinate"

    def __init__(self, share=0.5):
        self.share = share

    def compress(self, vectors, random):
        return Dense().compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return None


@dataclass
class NotFrozen(Compressor):
    """A dataclass that can be changed."""

    share: float = 0.5
    scope = "coordinate"

    def compress(self, vectors, random):
        return Dense().compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return None


class Undecorated(_Honest):
    """Inherits from a frozen dataclass; its own field is none."""

    share: float = 0.5


@dataclass(frozen=True)
class HasNoSamples(_Honest):
    """A parameter without a default of a type whose values nobody knows, and no samples."""

    kept: tuple

    def compress(self, vectors, random):
        return RandomK(k=self.kept[0]).compress(vectors, random)


@dataclass(frozen=True)
class BreaksBeyondItsDefault(_Honest):
    """A delta that holds of the default setting alone."""

    kept: int = 40

    def compress(self, vectors, random):
        return TopK(k=min(self.kept, vectors.shape[1])).compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return min(1.0, 40 / d)


@dataclass(frozen=True)
class BreaksAsItsShareGrows(_Honest):
    """A delta that is the share of a vector that is kept, which never is more than a tenth."""

    share: float = 0.1

    scope = "whole"

    def compress(self, vectors, random):
        return TopK(ratio=min(self.share, 0.1)).compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return self.share


@dataclass(frozen=True)
class SumsTogether(_Honest):
    """A scale whose sum begins at another column for other numbers of rows, as a matrix product's may."""

    scope = "whole"

    def compress(self, vectors, random):
        total = vectors.roll(len(vectors), 1).cumsum(1)
        return Dense().compress(total[:, -1:].expand_as(vectors) if total.numel() else vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return None


@dataclass(frozen=True)
class HoldsAList(_Honest):
    """A field that can change."""

    levels: list

    @classmethod
    def samples(cls):
        return [cls([1, 2])]


@dataclass(frozen=True)
class ReturnsATensor(_Honest):
    """Not a message at all."""

    def compress(self, vectors, random):
        return vectors
