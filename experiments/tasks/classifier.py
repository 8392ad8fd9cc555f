"""Classification by cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff.experiments.tasks.models import has_batch_norm, seeded
from commeff.experiments.tasks.supervised import Samples, Supervised


class Classifier(Supervised):
    """Classify by cross-entropy with the network that `build` makes.

    Parameters
    ----------
    build : makes the network; its random initial parameters are decided by `seed`.
    dtype : of the parameters and the inputs.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        dtype: torch.dtype,
        train: Samples,
        validation: Samples,
        test: Samples,
        *,
        workers: int,
        seed: int,
        batch: int,
        partition: str,
        alpha: float,
        shards: int,
        weighted: bool,
        probe: int | None = None,
    ) -> None:
        self._build, self._dtype, self._seed = build, dtype, seed
        if has_batch_norm(self.model()) and batch < 2:  # making a model also refuses what the model cannot have
            raise ValueError("norm batch needs more than one sample a batch: use batch >= 2 or norm=group")
        super().__init__(
            train,
            validation,
            test,
            workers=workers,
            seed=seed,
            batch=batch,
            partition=partition,
            alpha=alpha,
            shards=shards,
            weighted=weighted,
            probe=probe,
        )

    def model(self) -> nn.Module:
        """A fresh network; the same initial parameters at every call."""
        return seeded(self._build, self._seed).to(self._dtype)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of each sample."""
        return F.cross_entropy(outputs, targets, reduction="none")

    def sampled(self, outputs: Tensor, targets: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], int]:
        """Labels drawn from what the model predicts, and their number."""
        labels, *factors = targets
        return (outputs.softmax(-1).multinomial(1).squeeze(-1), *factors), labels.numel()

    def hits(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Is the largest output that of the label?"""
        return outputs.argmax(-1) == targets

    def flipped(self, targets: Tensor) -> Tensor:
        """C - 1 - c, where C - 1 is the last class of the training data."""
        return self._last - targets

    @cached_property
    def _last(self) -> int:
        return int(self.train.targets.max())
