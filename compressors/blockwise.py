"""One compressor on every block of b coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from commeff.compressors.base import Compressor, Scope, check_least, largest, smallest
from commeff.compressors.dense import Dense
from commeff.compressors.layout import Layout
from commeff.compressors.message import BlockMessage, ConcatenatedMessage, Message
from commeff.compressors.random import WorkerRandom
from commeff.compressors.sign import ScaledSign
from commeff.compressors.topk import TopK


@dataclass(frozen=True)
class Blockwise(Compressor):
    """Each ``block`` consecutive coordinates are a vector of their own; a shorter last block is one too.

    omega and delta are the worst of the two lengths. Sends what the compressor sends for every block.

    When: a scale or a choice for each block instead of one for the whole vector.

    Parameters
    ----------
    compressor
        What compresses each block.
    block
        Coordinates of a block, at least 1.

    Examples
    --------
    >>> import torch
    >>> Blockwise(Dense(), 4).compress(torch.ones(2, 10), WorkerRandom(0, range(2))).wire_bytes.tolist()
    [40, 40]
    """

    compressor: Compressor
    block: int

    scope: ClassVar[Scope] = "whole"

    def __post_init__(self) -> None:
        check_least("Blockwise: block", self.block)

    @property
    def summable(self) -> bool:
        return self.compressor.summable

    def bind(self, layout: Layout) -> Self:
        for length in self._lengths(layout.d):
            self.compressor.bind(Layout.flat(length))
        return self

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        rows, (blocks, rest) = len(vectors), divmod(vectors.shape[1], self.block)
        whole = blocks * self.block
        pieces: list[Message] = []
        if blocks:
            heads = vectors[:, :whole].reshape(rows * blocks, self.block)
            pieces.append(BlockMessage.of(self.compressor.compress(heads, random.split(blocks)), blocks))
        if rest or not blocks:
            pieces.append(self.compressor.compress(vectors[:, whole:], random.shifted(whole)))
        return pieces[0] if len(pieces) == 1 else ConcatenatedMessage.of(pieces)

    def omega(self, d: int) -> float | None:
        return largest(self.compressor.omega(length) for length in self._lengths(d))

    def delta(self, d: int) -> float | None:
        return smallest(self.compressor.delta(length) for length in self._lengths(d))

    def _lengths(self, d: int) -> set[int]:
        return {self.block, d % self.block} - {0} if d > self.block else {d}

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(ScaledSign(), 8), cls(TopK(ratio=0.25), 16), cls(Dense("bfloat16"), 7)]
