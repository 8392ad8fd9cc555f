"""Rows that lie in pieces on several ranks: each compresses its own to its piece of the whole row's message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from commeff.compressors.base import Compressor
from commeff.compressors.laws.problems import require
from commeff.compressors.laws.ranks import Thread, on_threads
from commeff.compressors.layout import Layout, total
from commeff.compressors.places import Places, Stretches
from commeff.compressors.random import WorkerRandom

WHOLE = Layout.of([("matrix", (6, 4)), ("vector", (5,))])


def check_pieces(compressor: Compressor) -> None:
    """Two ranks that each have half of the columns of a matrix and a copy of a vector decode pieces of one message."""
    if not compressor.exact_on_pieces:
        return
    vectors = WorkerRandom(1, range(2)).normal(WHOLE.d, dtype=torch.float64)
    whole = compressor.bind(WHOLE).compress(vectors, _stream(None)).decode()
    pieces = on_threads((2,), lambda axes: _piece(compressor, vectors, axes))
    for columns, decoded in pieces:
        expected = whole[:, columns]
        require(
            torch.allclose(decoded, expected, rtol=1e-12, atol=1e-12, equal_nan=True),
            f"{compressor}: on a piece of a row it differs by {float((decoded - expected).abs().max()):.1e}: draw by "
            "random.bits, uniform or normal of all columns, and take scales by bind(layout), or say scope = 'whole'",
        )
    first, second = (decoded[:, -5:] for _, decoded in pieces)
    require(torch.equal(first, second), f"{compressor}: two ranks read another number of what both hold")


@dataclass(frozen=True)
class HalfLayout(Layout):
    """Of half of the columns of the matrix, and of the vector, which the other rank has too."""

    rank: int = 0
    peers: tuple[Thread, ...] = ()

    @classmethod
    def on(cls, axes: tuple[Thread, ...]) -> HalfLayout:
        """As a rank has it."""
        return cls(Layout.of([("matrix", (6, 2)), ("vector", (5,))]).fields, 0, axes[0].rank, axes)

    @property
    def whole(self) -> Layout:
        return WHOLE

    @property
    def places(self) -> Places:
        return Places([Stretches(2 * self.rank, 2, 4, 6), Stretches(24, 5)])

    def row_sum(self, vectors: Tensor, of: Callable[[Tensor], Tensor] = total) -> Tensor:
        return self.peers[0].reduce(of(vectors[:, :12]) + of(vectors[:, 12:]) / 2, "sum")

    def row_max(self, largest: Tensor) -> Tensor:
        return self.peers[0].reduce(largest, "max")


def _piece(compressor: Compressor, vectors: Tensor, axes: tuple[Thread, ...]) -> tuple[Tensor, Tensor]:
    layout = HalfLayout.on(axes)
    columns = layout.places.of(0, layout.d)
    return columns, compressor.bind(layout).compress(vectors[:, columns], _stream(layout.places)).decode()


def _stream(places: Places | None) -> WorkerRandom:
    return WorkerRandom(0, [0, 1], places=places)
