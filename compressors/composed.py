"""A compressor on the values that another one keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, cast

from torch import Tensor

from commeff.compressors.base import Compressor, Scope, coarsest, contraction
from commeff.compressors.layout import Layout
from commeff.compressors.quantised import QSGD
from commeff.compressors.random import WorkerRandom
from commeff.compressors.randomk import RandomK
from commeff.compressors.sparse import Sparse, Sparsifier
from commeff.compressors.topk import TopK


@dataclass(frozen=True)
class Composed(Compressor):
    """``inner`` chooses coordinates, ``outer`` compresses the values at these.

    For unbiased parts omega = outer + inner + outer * inner, with outer's omega for k coordinates. If ``inner`` sends
    the values as they are, delta = outer's delta (for k coordinates) times inner's. Sends inner's indices or key and
    outer's message of k values.

    Basu et al. 2019 (Qsparse), arXiv:1906.02367.

    When: top-k or random-k whose values are still too long.

    Parameters
    ----------
    outer
        What compresses the k values that are kept: any compressor.
    inner
        What chooses the coordinates: TopK, RandomK or another `Sparsifier`.

    Examples
    --------
    >>> import torch
    >>> message = Composed(QSGD(levels=7), TopK(k=2)).compress(torch.eye(3, 16), WorkerRandom(0, range(3)))
    >>> message.wire_bytes.tolist()         # two indices of 4 bits, one scale, two codes of 4 bits
    [6, 6, 6]
    """

    outer: Compressor
    inner: Sparsifier

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Sparsifier):
            raise ValueError(
                f"Composed: inner must be a Sparsifier, got {self.inner}: outer compresses the values that it keeps; "
                "give TopK, RandomK or another Sparsifier"
            )

    @property
    def scope(self) -> Scope:
        return coarsest(self.outer.scope, self.inner.scope)

    @property
    def summable(self) -> bool:
        return self.outer.summable and self.inner.summable

    def bind(self, layout: Layout) -> Self:
        inner = cast(Sparsifier, self.inner.bind(layout))
        return type(self)(self.outer.bind(Layout.flat(inner.kept(layout.d))), inner)

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Sparse:
        chosen = self.inner.compress(vectors, random.fork(0))
        return chosen.with_values(self.outer.compress(chosen.values.decode(), random.fork(1)))

    def omega(self, d: int) -> float | None:
        outer, inner = self.outer.omega(self.inner.kept(d)), self.inner.omega(d)
        return None if outer is None or inner is None else outer + inner + outer * inner

    def delta(self, d: int) -> float | None:
        outer, inner = self.outer.delta(self.inner.kept(d)), self.inner.delta(d)
        if not self.inner.exact:
            return contraction(self.omega(d))
        return None if outer is None or inner is None else outer * inner

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(QSGD(8), TopK(ratio=0.25)), cls(QSGD(2), RandomK(ratio=0.5))]
