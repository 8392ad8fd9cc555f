"""Regularised logistic regression on LIBSVM data: the convex task."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

from commeff import require
from commeff.experiments.tasks.libsvm import SOURCES, SYNTHETIC, held_out_fifth, load, synthetic
from commeff.experiments.tasks.local_risks import REGULARISERS, LocalRisks
from commeff.experiments.tasks.models import DTYPES
from commeff.experiments.tasks.supervised import Supervised


class Margin(nn.Module):
    """x in R^d and maybe a bias, from zero. forward: <x, a> of each sample a, beside r(x): (b, d) -> (b, 2)."""

    def __init__(self, features: int, bias: bool, regulariser: str) -> None:
        super().__init__()
        self._regulariser = regulariser
        self.linear = nn.Linear(features, 1, bias)
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    def forward(self, inputs: Tensor) -> Tensor:
        margins = self.linear(inputs).squeeze(-1)
        squares = torch.cat([x.flatten().square() for x in self.parameters()])
        r = 0.5 * squares.sum() if self._regulariser == "l2" else (squares / (1 + squares)).sum()
        return torch.stack([margins, r.expand_as(margins)], -1)


class Logistic(Supervised):
    """F(x; a, y) = log(1 + exp(-y <x, a>)) + l2 r(x) with labels y in {-1, +1}, from x = 0.

    Both train_loss and val_loss hold the regulariser. Validation data: the test file (a9a, ijcnn1), else a fixed
    fifth (w8a, mushrooms, synthetic).

    With l2 above 0 it also measures gradient = |grad f(x)|^2 and, where f is convex, suboptimality = f(x) - min f, f
    being what the workers minimise together: the mean of their f_i, or that over all samples where `weighted`. They are
    computed in float64; x in float32 gets to about 1e-8.

    Parameters
    ----------
    workers : n.
    seed : of the split over workers and the batches.
    data : "a9a", "w8a", "mushrooms" or "ijcnn1"; "synthetic" needs no file.
    data_dir : the folder that holds libsvm/FILE; None: the environment variable COMMEFF_DATA.
    bias : append a one to every sample a; the bias is a coordinate of x like the others, so f stays strongly convex.
    l2 : weight of r. With the regulariser "l2" f is l2-strongly convex.
    regulariser : r, "l2", |x|^2 / 2, or "nonconvex", sum_j x_j^2 / (1 + x_j^2).
    batch : samples per worker and step.
    partition : "iid", "dirichlet" (alpha) or "shards" (shards per worker); see `commeff.experiments.tasks.partition`.
    weighted : minimise the mean over all samples, not over workers; see `Supervised`.
    dtype : "float32" or "float64".

    Raises
    ------
    DataError: a file is missing, corrupt or cut short.

    >>> Logistic(workers=8, data="iris")
    Traceback (most recent call last):
    ValueError: data must be one of a9a, w8a, mushrooms, ijcnn1, synthetic, got 'iris'
    >>> task = Logistic(workers=4, data="synthetic")
    >>> 0.1 < task.evaluate(task.model())["suboptimality"] < 0.7
    True
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        data: str = "a9a",
        data_dir: str | None = None,
        bias: bool = True,
        l2: float = 1e-4,
        regulariser: str = "l2",
        batch: int = 32,
        partition: str = "iid",
        alpha: float = 0.3,
        shards: int = 2,
        weighted: bool = False,
        dtype: str = "float32",
    ) -> None:
        require.at_least(0, l2=l2)
        require.one_of(REGULARISERS, regulariser=regulariser)
        self._dtype, self._bias, self._l2 = require.choose(DTYPES, dtype=dtype), bias, l2
        self._weighted, self._regulariser = weighted, regulariser
        require.one_of((*SOURCES, SYNTHETIC), data=data)
        if data == SYNTHETIC:
            train, validation = held_out_fifth(*synthetic(), self._dtype)
        else:
            train, validation = load(SOURCES[data], data_dir, self._dtype)
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
        return Margin(self.train.inputs.shape[1], self._bias, self._regulariser).to(self._dtype)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Losses, val_accuracy, and with l2 above 0 gradient and suboptimality."""
        metrics = super().evaluate(model)
        if self._l2 == 0:
            return metrics
        x = parameters_to_vector(model.parameters()).detach().cpu().double().numpy()
        value, gradient = self._risks.mean(x)
        metrics["gradient"] = float(gradient @ gradient)
        least = self._risks.least
        return metrics if least is None else metrics | {"suboptimality": max(value - least, 0.0)}

    @cached_property
    def _risks(self) -> LocalRisks:
        """f_i of each worker's samples, or f of all of them."""
        inputs, targets = (part.double().numpy() for part in (self.train.inputs, self.train.targets))
        if self._bias:
            inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
        indices = [np.arange(len(inputs))] if self._weighted else [*self.partition.indices]
        return LocalRisks(inputs, targets, indices, "logistic", self._regulariser, self._l2)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """log(1 + exp(-y <x, a>)) + l2 r(x) of each sample."""
        margins, r = outputs.unbind(-1)
        return F.softplus(-targets * margins) + self._l2 * r

    def flipped(self, targets: Tensor) -> Tensor:
        """-y: the other of two classes."""
        return -targets

    def hits(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Has the margin the sign of the label?"""
        return targets * outputs[..., 0] > 0
