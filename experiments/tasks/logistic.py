"""Regularised logistic regression on LIBSVM data: the convex task."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff import require
from commeff.experiments.tasks.libsvm import SOURCES, load
from commeff.experiments.tasks.models import DTYPES
from commeff.experiments.tasks.supervised import Supervised


class Margin(nn.Module):
    """x in R^d and maybe a bias, from zero. forward: <x, a> of each sample a, beside |x|^2 / 2: (b, d) -> (b, 2)."""

    def __init__(self, features: int, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1, bias)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        margins = self.linear(inputs).squeeze(-1)
        half_square = 0.5 * torch.stack([x.square().sum() for x in self.parameters()]).sum()
        return torch.stack([margins, half_square.expand_as(margins)], -1)


class Logistic(Supervised):
    """F(x; a, y) = log(1 + exp(-y <x, a>)) + (l2 / 2) |x|^2 with labels y in {-1, +1}, from x = 0.

    Both train_loss and val_loss hold the regulariser. Validation data: the test file (a9a, ijcnn1), else a fixed
    fifth (w8a, mushrooms).

    Parameters
    ----------
    workers : n.
    seed : of the split over workers and the batches.
    data : "a9a", "w8a", "mushrooms" or "ijcnn1".
    data_dir : the folder that holds libsvm/FILE; None: the environment variable COMMEFF_DATA.
    bias : append a one to every sample a; the bias is a coordinate of x like the others, so f stays strongly convex.
    l2 : mu; f is mu-strongly convex.
    batch : samples per worker and step.
    partition : "iid", "dirichlet" (alpha) or "shards" (shards per worker); see `commeff.experiments.tasks.partition`.
    weighted : minimise the mean over all samples, not over workers; see `Supervised`.
    dtype : "float32" or "float64".

    Raises
    ------
    DataError: a file is missing, corrupt or cut short.

    >>> Logistic(workers=8, data="iris")
    Traceback (most recent call last):
    ValueError: data must be one of a9a, w8a, mushrooms, ijcnn1, got 'iris'
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        data: str = "a9a",
        data_dir: str | None = None,
        bias: bool = True,
        l2: float = 1e-4,
        batch: int = 32,
        partition: str = "iid",
        alpha: float = 0.3,
        shards: int = 2,
        weighted: bool = False,
        dtype: str = "float32",
    ) -> None:
        require.at_least(0, l2=l2)
        self._dtype, self._bias, self._l2 = require.choose(DTYPES, dtype=dtype), bias, l2
        self._source = require.choose(SOURCES, data=data)
        train, validation = load(self._source, data_dir, self._dtype)
        super().__init__(
            train,
            validation,
            workers=workers,
            seed=seed,
            batch=batch,
            partition=partition,
            alpha=alpha,
            shards=shards,
            weighted=weighted,
        )

    def model(self) -> nn.Module:
        """x = 0."""
        return Margin(self._source.features, self._bias).to(self._dtype)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """log(1 + exp(-y <x, a>)) + (l2 / 2) |x|^2 of each sample."""
        margins, half_square = outputs.unbind(-1)
        return F.softplus(-targets * margins) + self._l2 * half_square

    def flipped(self, targets: Tensor) -> Tensor:
        """-y: the other of two classes."""
        return -targets

    def hits(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Has the margin the sign of the label?"""
        return targets * outputs[..., 0] > 0
