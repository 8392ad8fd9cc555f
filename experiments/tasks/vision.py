"""What the tasks on images share: classification by cross-entropy, the split, augmentation of training batches.

Images are changed at random by pure functions of (seed, step, worker, position in the batch): the numbers come from a
counter-based generator, so a batch is the same whichever workers are hosted together, and steps can be drawn in any
order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff import require
from commeff.compressors import WorkerRandom
from commeff.experiments.tasks.images import ImageSet
from commeff.experiments.tasks.models import ARCHITECTURES, DTYPES, NetworkSettings, has_batch_norm, seeded
from commeff.experiments.tasks.supervised import Supervised

PAD = 4  # pixels of black on each side before a crop (He et al., arXiv 1512.03385, section 4.2)


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


AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "none": none,
    "crop": crop,
    "crop_flip": crop_flip,
}


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


class Classifier(Supervised):
    """Classify by cross-entropy. A task says which network before the samples are split."""

    def set_network(self, build: Callable[[], nn.Module], dtype: torch.dtype, seed: int, batch: int) -> None:
        """`build` makes the network, whose random initial parameters are decided by `seed`; `dtype` is theirs."""
        self._build, self._dtype, self._seed = build, dtype, seed
        if has_batch_norm(self.model()) and batch < 2:  # making a model also refuses what the model cannot have
            raise ValueError("norm batch needs more than one sample a batch: use batch >= 2 or norm=group")

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


class Vision(Classifier):
    """Classify images by cross-entropy. A task reads its `ImageSet`; the other parameters are described here.

    Parameters
    ----------
    workers : n.
    seed : of the split over workers, the batches, their augmentation and the initial parameters.
    model : "linear", "mlp", "cnn", "resnet8", "resnet20", "resnet56" or "resnet18".
    width : units of the last hidden layer (mlp and cnn: 64); channels of the first stage of a ResNet (16, and 64 of
        ResNet-18); None: these numbers.
    norm : "none", "batch" or "group"; None: "group" for ResNets, "none" for the others. Heterogeneous data and batch
        statistics do not agree; "batch" is what the papers have.
    batch : samples per worker and step.
    partition : "iid", "dirichlet" (alpha) or "shards" (shards per worker); see `commeff.experiments.tasks.partition`.
    weighted : minimise the mean over all samples, not over workers; see `Supervised`.
    augment : of training batches: "none", "crop" (pad 4, random crop) or "crop_flip" (and mirror half of them).
    probe : training images on which train_loss is estimated; None: all.
    validation : training images held out, a fixed stratified choice; None: a tenth, 5,000 at most.
    dtype : "float32" or "float64".

    Attributes
    ----------
    label : what a report may call the data; a part of a data set, or a lossy copy, is called so.
    """

    def __init__(
        self,
        data: ImageSet,
        *,
        workers: int,
        seed: int,
        model: str,
        width: int | None = None,
        norm: str | None = None,
        batch: int = 32,
        partition: str = "dirichlet",
        alpha: float = 0.3,
        shards: int = 2,
        weighted: bool = False,
        augment: str = "none",
        probe: int | None = 2048,
        validation: int | None = None,
        dtype: str = "float32",
    ) -> None:
        self._augment = require.choose(AUGMENTATIONS, augment=augment)
        chosen, kind = require.choose(ARCHITECTURES, model=model), require.choose(DTYPES, dtype=dtype)
        network = NetworkSettings(
            channels=data.train.inputs.shape[1],
            size=data.train.inputs.shape[2],
            classes=len(data.classes),
            width=chosen.width if width is None else width,
            norm=chosen.norm if norm is None else norm,
        )
        self.set_network(partial(chosen.build, network), kind, seed, batch)
        super().__init__(
            *data.split(validation, kind),
            workers=workers,
            seed=seed,
            batch=batch,
            partition=partition,
            alpha=alpha,
            shards=shards,
            weighted=weighted,
            probe=probe,
        )
        self.label, self._classes = data.label, data.classes

    def class_names(self) -> list[str]:
        """Names of the labels that occur in the training data, in their order."""
        return [self._classes[label] for label in self.train.targets.unique().tolist()]

    def draw(self, index: Tensor, step: int, workers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The training images at index (w, b), augmented as bytes, then scaled."""
        images, targets = self.train.gather(index)
        return self.train.prepared(self._augment(images, stream(self._seed, step, workers))), targets
