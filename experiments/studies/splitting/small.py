"""A task of a second: random tokens for a small Llama in float64, whole or split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding import Axis, cross_entropy
from commeff.sharding.layers import Layers
from commeff.sharding.plan import Plan

VOCABULARY, CONTEXT, BATCH = 64, 8, 8
LAYERS, WIDTH, HEADS, INNER = 4, 32, 4, 64


class RandomTokens:
    """Next tokens that follow from nothing: losses mean nothing, gradients are those of a language model.

    Parameters
    ----------
    workers : int
        n.
    tied : bool
        Whether the embedding and the head are one matrix.
    """

    size = 0

    def __init__(self, workers: int = 2, tied: bool = False) -> None:
        self.workers, self._tied = workers, tied

    def model(self) -> Llama:
        """The model, the same at every call."""
        torch.manual_seed(1)
        return Llama(VOCABULARY, LAYERS, WIDTH, HEADS, HEADS // 2, INNER, tied=self._tied).double()

    def plan(self, model: Llama) -> Plan:
        """The plan by which tensor ranks split it."""
        return llama_plan(model)

    def layers(self, model: nn.Module) -> Layers:
        """The layers that stages share."""
        return LLAMA_LAYERS

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor, ...]:
        """(w, b, t + 1) tokens."""
        seeds = [torch.Generator().manual_seed(100 * step + worker) for worker in workers]
        return (torch.stack([torch.randint(VOCABULARY, (BATCH, CONTEXT + 1), generator=seed) for seed in seeds]),)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """The mean cross-entropy."""
        inputs, targets = self.inputs_targets(*batch)
        return self.criterion(model(*inputs), targets)

    def inputs_targets(self, tokens: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """All but the last, and all but the first."""
        return (tokens[:, :-1],), tokens[:, 1:]

    def criterion(self, outputs: Tensor, targets: Tensor, vocabulary: Axis | None = None) -> Tensor:
        """The mean cross-entropy of logits, which may be split over tensor ranks."""
        if vocabulary is not None:
            return cross_entropy(outputs, targets, vocabulary)
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Nothing is measured."""
        return {}

    def test(self, model: nn.Module) -> dict[str, float]:
        """Nothing is measured."""
        return {}

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """There is no BatchNorm."""
        return ()
