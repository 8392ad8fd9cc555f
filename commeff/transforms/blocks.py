"""Blocks of columns: the same transform over each block, each with its own memory."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.strategy import Strategy, Transform
from compressors import Layout


class Blocks(Transform):
    """v -> (inner(v[:, b]) for each block b): buckets, shards, fragments. `cuts` are the columns at which a new block
    begins.

    The partition must respect what the inner transform works on (its scope): any columns for `coordinate`, whole
    tensors for `tensor`, and nothing for `whole`. Memory and messages are those of the inner transform, per block.
    """

    own_scope = "whole"

    def __init__(self, inner: Transform, cuts: Sequence[int]) -> None:
        self._inner, self.cuts = inner, tuple(cuts)
        self.blocks: tuple[Transform, ...] = ()

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        bounds = (0, *self.cuts, layout.d)
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(
                f"blocks were asked to begin at columns {list(self.cuts)}; "
                f"cuts increase and lie strictly inside 0 and {layout.d}"
            )
        self._spans = list(pairwise(bounds))
        self._check_scope(layout)
        self.blocks = tuple(copy.deepcopy(self._inner) for _ in self._spans)
        for block, (a, b) in zip(self.blocks, self._spans, strict=True):
            block.start(v[:, a:b], layout.slice(a, b), communicator.columns(a))

    def _check_scope(self, layout: Layout) -> None:
        between_tensors = not any(layout.cuts_tensor(a, b) for a, b in self._spans)
        fine = {"coordinate": True, "tensor": between_tensors, "whole": not self.cuts}
        scope = self._inner.scope
        if not fine[scope]:
            unit = {"tensor": "whole tensors", "whole": "the whole vector"}[scope]
            raise ValueError(
                f"blocks beginning at columns {list(self.cuts)} were asked for, "
                f"but {type(self._inner).__name__} works on {unit}; "
                "cut nowhere finer, or choose a compressor of narrower scope (PerTensor, Blockwise)"
            )

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        pieces = zip(self.blocks, self._spans, strict=True)
        return torch.cat([block(vectors[:, a:b], communicator.columns(a)) for block, (a, b) in pieces], dim=1)


def blocked(strategy: Strategy, cuts: Sequence[int]) -> Strategy:
    """The strategy with both transforms run block by block."""
    return Strategy(
        strategy.local, Blocks(strategy.gradients, cuts), Blocks(strategy.parameters, cuts), strategy.accumulate
    )
