"""Small stand-ins for image data sets, in their official layouts. Each class has a colour, so they can be learnt."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

TRAIN, TEST = 200, 40  # images that a stand-in has


def pixels(labels: NDArray, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Noise below 32 over a level for each class and channel, (N, *shape)."""
    rng = np.random.default_rng(len(labels))
    levels = np.random.default_rng(0).integers(0, 220, (10, shape[0]))[labels]
    return (levels[..., None, None] + rng.integers(0, 32, (len(labels), *shape))).astype(np.uint8)


def cifar10(data_dir: Path, folder: str = "cifar-10-batches-py", train: int = TRAIN) -> str:
    """The six python batches as Python 2 would have written them; the data folder."""
    (data_dir / folder).mkdir(parents=True)
    sizes = {f"data_batch_{number}": train // 5 for number in range(1, 6)} | {"test_batch": TEST}
    for name, size in sizes.items():
        labels = np.arange(size) % 10
        (data_dir / folder / name).write_bytes(python2_pickle(pixels(labels, (3, 32, 32)), labels))
    return str(data_dir)


def python2_pickle(images: NDArray[np.uint8], labels: NDArray) -> bytes:
    """{"data": images as rows, "labels": a list}, in the opcodes of the official files, whose text is bytes."""
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    shape = b"J" + len(images).to_bytes(4, "little") + b"M\x00\x0c\x86"
    array = (
        empty + b"(K\x01" + shape + dtype + b"\x89T" + images.nbytes.to_bytes(4, "little") + images.tobytes() + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels" + numbers + b"u."


def fashion_mnist(data_dir: Path, train: int = 60_000, test: int = 10_000) -> str:
    """The four idx files; the data folder."""
    folder = data_dir / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for part, size in (("train", train), ("t10k", test)):
        labels = (np.arange(size) % 10).astype(np.uint8)
        images = pixels(labels, (1, 28, 28)) if size < 1000 else np.zeros((size, 28, 28), np.uint8)
        for kind, array in (("images-idx3", images.reshape(size, 28, 28)), ("labels-idx1", labels)):
            sizes = b"".join(number.to_bytes(4, "big") for number in array.shape)
            content = bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content, 1))
    return str(data_dir)


def image_folder(folder: Path, side: int = 12, classes: int = 4, parts: tuple[str, ...] = ("train", "test")) -> str:
    """PART/CLASS/FILE; the folder."""
    for part in parts:
        labels = np.arange(40 if part == "train" else 12) % classes
        for number, (label, image) in enumerate(zip(labels, pixels(labels, (3, side, side)), strict=True)):
            place = folder / part / f"class_{label}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.transpose(1, 2, 0)).save(place / f"{number}.png")
    return str(folder)
