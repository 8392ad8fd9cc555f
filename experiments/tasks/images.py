"""Images as bytes: how they are kept, scaled when they are drawn, and split into training and validation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from commeff.experiments.tasks.partition import held_out
from commeff.experiments.tasks.supervised import Samples

VALIDATION = 0.1  # share of the training images held out, unless said otherwise, ...
MOST = 5_000  # ... and the most that are


@dataclass(frozen=True, eq=False)
class Images(Samples):
    """Images (N, c, h, h) kept as bytes; a model is given (x / 255 - mean) / std. mean, std: (c, 1, 1), of one dtype.

    A pixel's channels lie side by side in memory (torch.channels_last), as convolutions want them.

    >>> ones = torch.ones(1, 1, 1)
    >>> black = Images(torch.zeros(2, 1, 4, 4).byte(), torch.tensor([3, 5]), mean=ones / 2, std=ones)
    >>> inputs, targets = black.take(torch.tensor([[1], [0]]))
    >>> inputs.shape, inputs.unique(), targets.tolist()
    (torch.Size([2, 1, 1, 4, 4]), tensor([-0.5000]), [[5], [3]])
    """

    mean: Tensor
    std: Tensor

    @property
    def dtype(self) -> torch.dtype:
        """The type of a model's inputs."""
        return self.mean.dtype

    def prepared(self, inputs: Tensor) -> Tensor:
        """Bytes (..., c, h, h), scaled."""
        pixels = inputs.flatten(0, -4).contiguous(memory_format=torch.channels_last).to(self.dtype)
        return torch.addcmul(-self.mean / self.std, pixels, 1 / (255 * self.std)).unflatten(0, inputs.shape[:-3])


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A data set of labelled images, read.

    label: what a report may call it.   classes: their names.   train, test: bytes (N, c, h, h) and labels (N,) int64.
    validation: where the data set has a set of its own.   mean, std: of each channel, on [0, 1].
    """

    label: str
    classes: tuple[str, ...]
    train: Samples
    test: Samples
    mean: tuple[float, ...]
    std: tuple[float, ...]
    validation: Samples | None = None

    def split(self, validation: int | None, dtype: torch.dtype) -> tuple[Images, Images, Images]:
        """Training, validation and test images. Without a validation set `validation` training images are held out.

        The split is stratified and always the same; None: a tenth of the training images, 5,000 at most.
        """
        train, validation_images = self.train, self.validation
        if validation_images is None:
            rows, out = held_out(train.targets.numpy(), self._size(validation))
            train, validation_images = train.at(rows), train.at(out)
        elif validation is not None:
            raise ValueError(f"{self.label} has a validation set of its own: leave validation out")
        mean, std = (torch.tensor(numbers, dtype=dtype).view(-1, 1, 1) for numbers in (self.mean, self.std))
        parts = [
            Images(samples.inputs, samples.targets, mean, std) for samples in (train, validation_images, self.test)
        ]
        return parts[0], parts[1], parts[2]

    def _size(self, validation: int | None) -> int:
        available = len(self.train)
        size = min(MOST, round(VALIDATION * available)) if validation is None else validation
        least, most = len(self.classes), available - len(self.classes)
        if not least <= size <= most:
            raise ValueError(
                f"validation={size} images of {available} leave a class without one on either side: "
                f"choose {least} ... {most}, or take more images"
            )
        return size


def samples(pixels: NDArray[np.uint8], labels: NDArray) -> Samples:
    """Bytes (N, c, h, h) and labels as tensors of their own."""
    return Samples(torch.from_numpy(np.ascontiguousarray(pixels)), torch.from_numpy(labels.astype(np.int64)))


def statistics(pixels: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of bytes (N, c, h, h), on [0, 1], exact: from histograms.

    >>> statistics(torch.tensor([0, 255]).byte().view(2, 1, 1, 1))
    ((0.5,), (0.5,))
    """
    levels = np.arange(256) / 255
    counts = [np.bincount(channel.reshape(-1), minlength=256) for channel in pixels.transpose(0, 1).numpy()]
    means = [float(levels @ count / count.sum()) for count in counts]
    squares = [float((levels - mean) ** 2 @ count / count.sum()) for mean, count in zip(means, counts, strict=True)]
    return tuple(means), tuple(square**0.5 for square in squares)
