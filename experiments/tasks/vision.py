"""What the tasks on images share: the networks to choose from, the split, augmentation of training batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from commeff import require
from commeff.experiments.tasks.augment import AUGMENTATIONS, stream
from commeff.experiments.tasks.classifier import Classifier
from commeff.experiments.tasks.images import ImageSet
from commeff.experiments.tasks.models import DTYPES, MODELS, NetworkSettings
from commeff.experiments.tasks.resnet import Projected, Subsampled, resnet


@dataclass(frozen=True)
class Architecture:
    """A kind of network, with the width and the norm it has unless said otherwise."""

    build: Callable[[NetworkSettings], nn.Module]
    width: int = NetworkSettings.width
    norm: str = NetworkSettings.norm


def _small(*blocks: int) -> Architecture:
    return Architecture(partial(resnet, blocks=blocks, shortcut=Subsampled), width=16, norm="group")


ARCHITECTURES: Mapping[str, Architecture] = {
    **{name: Architecture(build) for name, build in MODELS.items()},
    "resnet8": _small(1, 1, 1),
    "resnet20": _small(3, 3, 3),
    "resnet56": _small(9, 9, 9),
    "resnet18": Architecture(partial(resnet, blocks=(2, 2, 2, 2), shortcut=Projected), width=64, norm="group"),
}


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
        width: int | None,
        norm: str | None,
        batch: int,
        partition: str,
        alpha: float,
        shards: int,
        weighted: bool,
        augment: str,
        probe: int | None,
        validation: int | None,
        dtype: str,
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
        super().__init__(
            partial(chosen.build, network),
            kind,
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
        self.label, self._classes, self._stream = data.label, data.classes, partial(stream, seed)

    def class_names(self) -> list[str]:
        """Names of the labels that occur in the training data, in their order."""
        return [self._classes[label] for label in self.train.targets.unique().tolist()]

    def draw(self, index: Tensor, step: int, workers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The training images at index (w, b), augmented as bytes, then scaled."""
        images, targets = self.train.gather(index)
        return self.train.prepared(self._augment(images, self._stream(step, workers))), targets
