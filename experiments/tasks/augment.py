"""Random changes of training images, as pure functions of (seed, step, worker, position in the batch).

The numbers come from a counter-based generator, so a batch is the same whichever workers are hosted together, and
steps can be drawn in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from commeff.compressors import WorkerRandom

PAD = 4  # pixels of black on each side before a crop (He et al., arXiv 1512.03385, section 4.2)

Augmentation = Callable[[Tensor, WorkerRandom], Tensor]


def none(images: Tensor, random: WorkerRandom) -> Tensor:
    """The images as they are."""
    return images


def crop(images: Tensor, random: WorkerRandom) -> Tensor:
    """Pad with 4 black pixels on each side, and cut a random window of the old size out of each image."""
    places = (random.uniform(2 * images.shape[1]) * (2 * PAD + 1)).long()  # uniform corners, 0 ... 2 PAD
    return windows(images, *places.chunk(2, dim=1))


def crop_flip(images: Tensor, random: WorkerRandom) -> Tensor:
    """`crop`, then mirror half of the images, left to right."""
    mirrored = random.fork(1).uniform(images.shape[1]) < 0.5
    return flipped(crop(images, random), mirrored)


AUGMENTATIONS: dict[str, Augmentation] = {"none": none, "crop": crop, "crop_flip": crop_flip}


def stream(seed: int, step: int, workers: Sequence[int]) -> WorkerRandom:
    """The random numbers of these workers' batches at a step."""
    return WorkerRandom(seed, workers, step, ("augment",))


def windows(images: Tensor, top: Tensor, left: Tensor) -> Tensor:
    """Windows of images (w, b, c, h, h) padded by `PAD` zeros, with their corners at (top, left), both (w, b).

    >>> image = torch.arange(1, 5).view(1, 1, 1, 2, 2)
    >>> windows(image, torch.tensor([[3]]), torch.tensor([[4]]))[0, 0, 0]
    tensor([[0, 0],
            [1, 2]])
    """
    size = images.shape[-1]
    padded = F.pad(images.flatten(0, 1), (PAD, PAD, PAD, PAD))
    every = padded.unfold(2, size, 1).unfold(3, size, 1)  # a view (w b, c, places, places, size, size)
    return every[torch.arange(len(padded)), :, top.flatten(), left.flatten()].view(images.shape)


def flipped(images: Tensor, mirrored: Tensor) -> Tensor:
    """Images (w, b, c, h, h), those mirrored left to right for which `mirrored` (w, b) is true."""
    return torch.where(mirrored[..., None, None, None], images.flip(-1), images)
