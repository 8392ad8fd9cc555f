"""scikit-learn's digits: 1797 grey images of 8 x 8 pixels, ten classes. They ship in scikit-learn: no files needed."""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import torch
from numpy.typing import NDArray

from commeff import require
from commeff.experiments.tasks.models import DTYPES, MODELS, NetworkSettings
from commeff.experiments.tasks.partition import held_out
from commeff.experiments.tasks.supervised import Samples
from commeff.experiments.tasks.vision import Classifier

HELD_OUT = 360  # 20 % of 1797 for validation and as many for the test; 1077 are left for training


class Digits(Classifier):
    """Classify 8 x 8 digits by cross-entropy.

    1077 training, 360 validation and 360 test images, a fixed stratified split; pixels are divided by 16.

    Parameters
    ----------
    workers : n.
    seed : of the split over workers, the batches and the initial parameters.
    model : "linear", "mlp" or "cnn".
    hidden : units of the last hidden layer (mlp and cnn).
    norm : "none", "batch" or "group" (mlp and cnn). Heterogeneous data and batch statistics do not agree: prefer
        "group" there.
    dropout : probability, before the last layer (mlp and cnn).
    batch : samples per worker and step.
    partition : "iid", "dirichlet" (alpha) or "shards" (shards per worker); see `commeff.experiments.tasks.partition`.
    weighted : minimise the mean over all samples, not over workers; see `Supervised`.
    dtype : "float32" or "float64".

    >>> task = Digits(workers=4, model="cnn", norm="group", batch=8)
    >>> inputs, targets = task.batch(0, [0, 3])
    >>> inputs.shape, targets.shape
    (torch.Size([2, 8, 1, 8, 8]), torch.Size([2, 8]))
    >>> sorted(task.evaluate(task.model()))
    ['train_loss', 'val_accuracy', 'val_loss']
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        model: str = "mlp",
        hidden: int = 64,
        norm: str = "none",
        dropout: float = 0.0,
        batch: int = 32,
        partition: str = "dirichlet",
        alpha: float = 0.3,
        shards: int = 2,
        weighted: bool = False,
        dtype: str = "float32",
    ) -> None:
        require.at_least(1, hidden=hidden)
        network = NetworkSettings(channels=1, size=8, classes=10, width=hidden, norm=norm, dropout=dropout)
        kind = require.choose(DTYPES, dtype=dtype)
        self.set_network(partial(require.choose(MODELS, model=model), network), kind, seed, batch)
        super().__init__(
            *load_digits(kind),
            workers=workers,
            seed=seed,
            batch=batch,
            partition=partition,
            alpha=alpha,
            shards=shards,
            weighted=weighted,
        )


def load_digits(dtype: torch.dtype) -> tuple[Samples, Samples, Samples]:
    """Training, validation and test images, (N, 1, 8, 8) in [0, 1], and labels.

    >>> [len(samples) for samples in load_digits(torch.float32)]
    [1077, 360, 360]
    """
    pixels, labels = _read()
    inputs = torch.from_numpy(pixels / 16).to(dtype).view(-1, 1, 8, 8)
    targets = torch.from_numpy(labels).long()
    rest, test = held_out(labels, HELD_OUT)
    rows, out = held_out(labels[rest], HELD_OUT)
    train, validation, tested = (Samples(inputs[i], targets[i]) for i in (rest[rows], rest[out], test))
    return train, validation, tested


@cache
def _read() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """What is read once; tasks get tensors of their own, which whoever has one may write into."""
    from sklearn import datasets  # late: a second of import that other tasks do not need

    pixels, labels = datasets.load_digits(return_X_y=True)
    return pixels, labels
