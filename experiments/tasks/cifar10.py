"""CIFAR-10: 60,000 colour images of 32 x 32 pixels, ten classes (A. Krizhevsky, "Learning Multiple Layers of Features
from Tiny Images", 2009), from the official python batches or from a copy as JPEG files.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from commeff import require
from commeff.experiments.data.folder import ENVIRONMENT, DataError, cache_folder, data_folder
from commeff.experiments.tasks import image_folder
from commeff.experiments.tasks.images import ImageSet, samples
from commeff.experiments.tasks.settled import Settled
from commeff.experiments.tasks.supervised import Samples
from commeff.experiments.tasks.vision import Vision

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = "cifar-10-batches-py"
JPEG = "cifar-10-jpeg"
BATCH_FILES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
FULL = (50_000, 10_000)
REMEDY = "`commeff data prepare cifar10 --from cifar-10-python.tar.gz --to FOLDER` unpacks the official archive"

# Of each channel over the 50,000 training images, as most code has them.
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

# Where each variant lies in the data folder, the first that is there; the JPEG files may be in the cache instead.
PLACES: Mapping[str, tuple[str, ...]] = {
    "auto": (BATCHES, f"cifar-10-subset/{BATCHES}", JPEG),
    "whole": (BATCHES, JPEG),
    "full": (BATCHES,),
    "subset": (f"cifar-10-subset/{BATCHES}", BATCHES),
    "jpeg": (JPEG,),
}

ALLOWED = (  # what a pickled array is made with, under the names of old and new NumPy; nothing else is called
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    *(("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")),
)


class CIFAR10(Vision, Settled):
    """Classify the images of CIFAR-10: 50,000 for training, of which 5,000 for validation, and 10,000 for the test.

    Parameters
    ----------
    data_dir : the folder that holds cifar-10-batches-py; None: the environment variable COMMEFF_DATA.
    variant : "full" (the official batches), "subset" (batches with fewer of the same images), "jpeg" (all images, as
        JPEG files: `commeff data prepare cifar10_jpeg`), "auto" (what is there, in this order) or "whole" (the same
        without the subset). `label` says which; the configuration of a run has the one that was found, so runs on
        different ones are different runs.

    The others are those of `Vision`.

    Raises
    ------
    DataError: a file is missing, corrupt or cut short.

    >>> CIFAR10(workers=8, variant="small")
    Traceback (most recent call last):
    ValueError: variant must be one of auto, whole, full, subset, jpeg, got 'small'
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        data_dir: str | None = None,
        variant: str = "auto",
        model: str = "resnet20",
        width: int | None = None,
        norm: str | None = None,
        batch: int = 32,
        partition: str = "dirichlet",
        alpha: float = 0.3,
        shards: int = 2,
        weighted: bool = False,
        augment: str = "crop_flip",
        probe: int | None = 2048,
        validation: int | None = None,
        dtype: str = "float32",
    ) -> None:
        super().__init__(
            load(variant, data_dir),
            workers=workers,
            seed=seed,
            model=model,
            width=width,
            norm=norm,
            batch=batch,
            partition=partition,
            alpha=alpha,
            shards=shards,
            weighted=weighted,
            augment=augment,
            probe=probe,
            validation=validation,
            dtype=dtype,
        )

    @classmethod
    def settled(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """With the variant that is there in place of "auto" or "whole"."""
        if settings["variant"] in ("auto", "whole"):
            with suppress(DataError):
                return {**settings, "variant": variant_of(locate(settings["variant"], settings["data_dir"]))}
        return dict(settings)


def variant_of(folder: Path) -> str:
    """The variant that a folder holds; batches that take less space than all images need are a subset."""
    if folder.name == JPEG:
        return "jpeg"
    sizes = [(folder / name).stat().st_size for name in BATCH_FILES if (folder / name).is_file()]
    return "full" if len(sizes) == len(BATCH_FILES) and sum(sizes) >= 3072 * sum(FULL) else "subset"


def load(variant: str, data_dir: str | None) -> ImageSet:
    """The images of a variant, from the first of its places that is there."""
    folder = locate(variant, data_dir)
    return from_files(folder) if folder.name == JPEG else from_batches(folder, variant)


def locate(variant: str, data_dir: str | None) -> Path:
    """The folder of a variant."""
    places = require.choose(PLACES, variant=variant)
    folder = data_folder(data_dir, "CIFAR-10", REMEDY)
    for path in [folder / place for place in places] + [cache_folder() / place for place in places if place == JPEG]:
        if (path / "train" if path.name == JPEG else path).is_dir():
            return path
    raise DataError(
        f"no folder {' or '.join(places)} in {folder} that variant={variant} could read: "
        f"correct data_dir or {ENVIRONMENT}, or {REMEDY}"
    )


def from_files(folder: Path) -> ImageSet:
    """All images, from JPEG files: close to the official pixels, but not equal to them."""
    images = image_folder.load(folder, size=32)
    if images.classes != CLASSES:
        raise DataError(f"{folder} has classes {', '.join(images.classes)}, which are not those of CIFAR-10: {REMEDY}")
    return replace(images, label="CIFAR-10 (JPEG re-encoded)", mean=MEAN, std=STD)


def from_batches(folder: Path, variant: str) -> ImageSet:
    """Official pixels; a folder of fewer images is a subset, and is called so."""
    *parts, test = (read(folder / name) for name in BATCH_FILES)
    train = Samples(torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts]))
    complete = (len(train), len(test)) == FULL
    if variant != "auto" and complete != (variant in ("full", "whole")):
        raise DataError(
            f"{folder} holds {len(train):,} + {len(test):,} images, which is not variant={variant}: "
            f"use variant={'full' if complete else 'subset'}, or correct data_dir"
        )
    label = "CIFAR-10" if complete else f"CIFAR-10 subset ({len(train):,}/{len(test):,})"
    return ImageSet(label, CLASSES, train, test, MEAN, STD)


def read(path: Path) -> Samples:
    """One batch file: images (N, 3, 32, 32) and labels."""
    try:
        batch = _Unpickler(io.BytesIO(path.read_bytes())).load()
        pixels, labels = _field(batch, "data"), np.asarray(_field(batch, "labels"))
    except FileNotFoundError:
        raise DataError(f"no file {path}: {REMEDY}") from None
    except Exception as error:  # a damaged pickle can raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(f"{path} is corrupt or cut short ({reason}): {REMEDY}") from error
    if not (
        isinstance(pixels, np.ndarray)
        and pixels.dtype == np.uint8
        and labels.ndim == 1
        and pixels.shape == (len(labels), 3072)
        and labels.dtype.kind == "i"
        and set(labels.tolist()) <= set(range(10))
    ):
        raise DataError(f"{path} is no batch of CIFAR-10 (bytes N x 3072 and N labels from 0 to 9): {REMEDY}")
    return samples(pixels.reshape(-1, 3, 32, 32), labels)


class _Unpickler(pickle.Unpickler):
    """Reads arrays, numbers, text and containers of them. A pickle that calls for anything else is refused."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, encoding="bytes")  # the official files were written by Python 2

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _field(batch: Mapping[Any, Any], name: str) -> Any:
    """A field under its name, or under its name in bytes, as Python 2 wrote it."""
    return batch[name] if name in batch else batch[name.encode()]
