"""Fashion-MNIST: 70,000 grey images of 28 x 28 pixels, ten classes (H. Xiao, K. Rasul, R. Vollgraf, arXiv 1708.07747),
from the four official files.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from commeff.experiments.data.folder import ENVIRONMENT, DataError, data_folder
from commeff.experiments.tasks.images import ImageSet, samples
from commeff.experiments.tasks.supervised import Samples
from commeff.experiments.tasks.vision import Vision

CLASSES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
FOLDER = "FashionMNIST/raw"
SIZES = {"train": 60_000, "t10k": 10_000}
REMEDY = "`commeff data prepare fashion_mnist --from FILES --to FOLDER` puts the four official files there"

# Over the 60,000 training images, as most code has them.
MEAN, STD = (0.2860,), (0.3530,)


class FashionMNIST(Vision):
    """Classify the images of Fashion-MNIST: 60,000 for training, of which 5,000 for validation; 10,000 for the test.

    Parameters
    ----------
    data_dir : the folder that holds FashionMNIST/raw; None: the environment variable COMMEFF_DATA.

    The others are those of `Vision`.

    Raises
    ------
    DataError: a file is missing, corrupt or cut short.
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        data_dir: str | None = None,
        model: str = "cnn",
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
        super().__init__(
            load(data_dir),
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


def load(data_dir: str | None) -> ImageSet:
    """The 60,000 + 10,000 images."""
    folder = data_folder(data_dir, "Fashion-MNIST", REMEDY) / FOLDER
    train, test = (read(folder, part, count) for part, count in SIZES.items())
    return ImageSet("Fashion-MNIST", CLASSES, train, test, MEAN, STD)


def read(folder: Path, part: str, count: int) -> Samples:
    """The images (count, 1, 28, 28) and labels of one part."""
    images = idx(folder / f"{part}-images-idx3-ubyte.gz", (count, 28, 28))
    labels = idx(folder / f"{part}-labels-idx1-ubyte.gz", (count,))
    if labels.max() >= len(CLASSES):
        raise DataError(f"{folder}: the labels of {part} go up to {labels.max()}, not 9: {REMEDY}")
    return samples(images[:, None], labels)


def idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The array in a gzipped idx file of bytes: 0, 0, 8, the number of dimensions, their sizes, the bytes."""
    if not path.is_file():
        raise DataError(f"no file {path}: correct data_dir or {ENVIRONMENT}, or {REMEDY}")
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is corrupt or cut short ({' '.join(str(error).split())}): {REMEDY}") from error
    header = bytes((0, 0, 8, len(shape))) + b"".join(size.to_bytes(4, "big") for size in shape)
    body = np.frombuffer(content, np.uint8)[len(header) :]
    if not content.startswith(header) or len(body) != np.prod(shape):
        raise DataError(f"{path} does not hold bytes of shape {shape}: cut short or wrong file; {REMEDY}")
    return body.reshape(shape).copy()
