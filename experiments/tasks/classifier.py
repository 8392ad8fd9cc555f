"""Tasks whose samples have one label of several: cross-entropy, and a network with seeded parameters."""

from __future__ import annotations

from collections.abc import Callable

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

    def hits(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Is the largest output that of the label?"""
        return outputs.argmax(-1) == targets
