"""Compressors that shrink the error, which error feedback needs: as they are, or an unbiased one scaled down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from commeff.compressors.base import Compressor, CompressorWrapper, check_least
from commeff.compressors.layout import Layout
from commeff.compressors.message import Compound, Message, joined
from commeff.compressors.narrow import Natural
from commeff.compressors.quantised import QSGD, TernGrad
from commeff.compressors.random import WorkerRandom
from commeff.compressors.randomk import RandomK


@dataclass(frozen=True, eq=False)
class ShrunkMessage(Compound):
    """A message read ``factor`` times as large. Wire format: that of the message; the receiver knows the factor."""

    factor: float

    def decode(self) -> Tensor:
        return self.inner[0].decode() * self.factor

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        self.inner[0].add_to(out, weights * self.factor)


@dataclass(frozen=True)
class Shrunk(CompressorWrapper):
    """factor * C(v). For unbiased C, delta = 1 - factor^2 omega - (1 - factor)^2, where that is positive.

    Parameters
    ----------
    compressor
        C, usually unbiased.
    factor
        What C(v) is multiplied by when it is read; 1 / (1 + omega) gives the best delta, which is the same number.

    Examples
    --------
    >>> Shrunk(TernGrad(), 0.5).omega(9), Shrunk(TernGrad(), 0.5).delta(9)
    (None, 0.5)
    """

    factor: float

    def compress(self, vectors: Tensor, random: WorkerRandom) -> ShrunkMessage:
        parts, forms = joined([self.compressor.compress(vectors, random)])
        return ShrunkMessage(parts, vectors.shape[1], vectors.dtype, forms, self.factor)

    def omega(self, d: int) -> float | None:
        return self.compressor.omega(d) if self.factor == 1 else None

    def delta(self, d: int) -> float | None:
        omega = self.compressor.omega(d)
        if omega is None:
            return self.compressor.delta(d) if self.factor == 1 else None
        delta = 1 - self.factor**2 * omega - (1 - self.factor) ** 2
        return delta if delta > 0 else None

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(TernGrad(), 0.25)]


@dataclass(frozen=True)
class Contractive(CompressorWrapper):
    """What `contractive` returns; `bind` turns it into C or C / (1 + omega(d)).

    Parameters
    ----------
    compressor
        C, contractive or unbiased, or with an error that is bounded whatever v is.

    Examples
    --------
    >>> Contractive(QSGD(1)).for_dimension(9), Contractive(QSGD(1)).delta(9)
    (Shrunk(compressor=QSGD(levels=1, bucket=None, norm='l2'), factor=0.25), 0.25)
    """

    def bind(self, layout: Layout) -> Compressor:
        return Contractive(self.compressor.bind(layout)).for_dimension(layout.size)

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        return self.for_dimension(vectors.shape[1]).compress(vectors, random)

    def omega(self, d: int) -> float | None:
        return self.for_dimension(d).omega(d)

    def delta(self, d: int) -> float | None:
        return self.for_dimension(d).delta(d)

    def for_dimension(self, d: int) -> Compressor:
        """The contractive compressor of d coordinates."""
        if self.compressor.delta(d) is not None or self.compressor.absolute(d) is not None:
            return self.compressor
        omega = self.compressor.omega(d)
        if omega is None:
            raise ValueError(
                f"the compressor must be contractive or unbiased, got {self.compressor}, which is neither in {d} "
                "dimensions: its error can grow without bound; use it without error feedback, EF21, CHOCO and "
                "Repeated, choose another one, or say Assumed(compressor, contraction=0.5) of vectors that "
                "you know"
            )
        return Shrunk(self.compressor, 1 / (1 + omega))

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(QSGD(1)), cls(Natural()), cls(RandomK(ratio=0.25))]


@dataclass(frozen=True)
class Assumed(CompressorWrapper):
    """C as it is, with constants of which you say that they hold for your vectors, though not for all.

    So methods with a memory take what is contractive in practice alone, such as signs with the scale of 1-bit Adam. No
    law can hold this to its word but that of a given vector. Sends what C sends.

    When: a compressor whose worst case is far from your vectors, in `mem_sgd`, `ef21`, `choco` or `diana`.

    Parameters
    ----------
    compressor
        C.
    contraction
        delta, in (0, 1], with E|C(v) - v|^2 <= (1 - delta)|v|^2 for your v; None: C's own.
    variance
        omega, with E C(v) = v and E|C(v) - v|^2 <= omega |v|^2 for your v; None, the default: C's own.

    Examples
    --------
    >>> from commeff.compressors import ScaledSign
    >>> ScaledSign("l2").delta(1000), contractive(Assumed(ScaledSign("l2"), contraction=0.5)).delta(1000)
    (None, 0.5)
    """

    contraction: float | None
    variance: float | None = None

    def __post_init__(self) -> None:
        if self.contraction is not None and not 0 < self.contraction <= 1:
            raise ValueError(f"Assumed: contraction must lie in (0, 1], got {self.contraction}")
        check_least("Assumed: variance", self.variance, 0)

    def omega(self, d: int) -> float | None:
        return self.compressor.omega(d) if self.variance is None else self.variance

    def delta(self, d: int) -> float | None:
        return self.compressor.delta(d) if self.contraction is None else self.contraction

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(RandomK(ratio=0.25, scaled=False), contraction=0.25)]


def contractive(compressor: Compressor) -> Contractive:
    """C where delta(d) or a bound for all v is known, C / (1 + omega(d)) where omega(d) is; else ValueError at `bind`.

    An unbiased C with |C(v) - v| > |v| makes error feedback diverge; divided by 1 + omega it has delta = 1 / (1 +
    omega).

    >>> contractive(RandomK(k=2)).bind(Layout.flat(8))
    Shrunk(compressor=RandomK(ratio=None, k=2, scaled=True, shared=False), factor=0.25)
    >>> contractive(RandomK(k=2, scaled=False)).bind(Layout.flat(8)).delta(8)
    0.25
    """
    if not isinstance(compressor, Compressor):
        raise TypeError(f"compressor must be a Compressor, got {compressor!r}; give one, such as TopK(ratio=0.01)")
    return compressor if isinstance(compressor, Contractive) else Contractive(compressor)
