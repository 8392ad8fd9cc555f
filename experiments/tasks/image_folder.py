"""Images of your own: train/CLASS/FILE and test/CLASS/FILE, and maybe val/CLASS/FILE, decoded once into a cache."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commeff import require
from commeff.experiments.data.folder import CACHE, DataError, cache_folder, data_folder
from commeff.experiments.tasks.images import ImageSet, samples, statistics
from commeff.experiments.tasks.settled import Settled, from_here
from commeff.experiments.tasks.supervised import Samples
from commeff.experiments.tasks.vision import Vision
from commeff.files import appearing, regular

LAYOUT = "an image folder holds train/CLASS/FILE and test/CLASS/FILE, and may hold val/CLASS/FILE"


class ImageFolder(Vision, Settled):
    """Classify the images of a folder: train/CLASS/FILE, test/CLASS/FILE, and maybe val/CLASS/FILE.

    They are decoded once, made square, and kept as one array in a cache (COMMEFF_CACHE, by default ~/.cache/commeff);
    the folder itself is only read. Mean and standard deviation of the channels are those of the images in train.

    Parameters
    ----------
    path : the folder, absolute or relative to where the command is typed; what is not there is looked for in data_dir.
    data_dir : the data folder; None: the environment variable COMMEFF_DATA.
    size : side of the images that the model sees: the shorter side is made so long, and the middle cut out.
    validation : where there is no val folder, training images held out; None: a tenth, 5,000 at most.

    The others are those of `Vision`.

    Raises
    ------
    DataError: a folder is missing or not laid out like that, or a file is no image.
    """

    def __init__(
        self,
        workers: int,
        path: str,
        seed: int = 0,
        data_dir: str | None = None,
        size: int = 32,
        model: str = "resnet20",
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
        require.at_least(1, size=size)
        super().__init__(
            load(locate(path, data_dir), size),
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
        """With the full path of a folder that is given relative to the working directory."""
        return {**settings, "path": from_here(settings["path"], Path.is_dir)}


def locate(path: str, data_dir: str | None) -> Path:
    """The folder that `path` means: itself, seen from the working directory, or the one of that name in data_dir."""
    folder = Path(path).expanduser()
    if folder.is_absolute() or folder.is_dir():
        return folder
    return data_folder(data_dir, f"{path}, which is not in {Path.cwd()}", "or give an absolute path") / folder


def load(folder: Path, size: int) -> ImageSet:
    """The images of a folder, each size x size."""
    for part in ("train", "test"):
        if not (folder / part).is_dir():
            raise DataError(f"no folder {folder / part}: {LAYOUT}")
    classes, train = read(folder / "train", size)
    others = {part: read(folder / part, size) for part in ("val", "test") if (folder / part).is_dir()}
    for part, (names, _) in others.items():
        if names != classes:
            differing = sorted(set(names) ^ set(classes))
            raise DataError(f"{folder}: train and {part} do not hold the same classes; they differ in {differing[:5]}")
    mean, std = statistics(train.inputs)
    if not all(std):
        raise DataError(f"{folder / 'train'}: a colour channel is the same in every pixel; these are no photographs")
    validation = others["val"][1] if "val" in others else None
    return ImageSet(folder.name, tuple(classes), train, others["test"][1], mean, std, validation)


def read(folder: Path, size: int) -> tuple[list[str], Samples]:
    """The classes and the images of one part; decoded the first time, then read from the cache."""
    from commeff.experiments.data.images import decode, scan

    classes, files, labels = scan(folder)
    name = "-".join((folder.parent.name, folder.name, str(size), _digest(folder, files)))
    cache = cache_folder() / "images" / f"{name}.npy"
    pixels = _read_cache(cache, (len(files), 3, size, size))
    if pixels is None:
        pixels = decode(files, size)
        _keep(cache, pixels)
    return classes, samples(pixels, labels)


def _digest(folder: Path, files: list[Path]) -> str:
    """A digest of the names, sizes and times of files, whose contents are not read."""
    digest = hashlib.sha256()
    for file in files:
        status = file.stat()
        digest.update(f"{file.relative_to(folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _read_cache(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8] | None:
    """The array in a file of the cache; None if there is none of this shape."""
    try:
        pixels = np.load(path)
    except (OSError, ValueError, EOFError):
        return None
    return pixels if pixels.shape == shape and pixels.dtype == np.uint8 else None


def _keep(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write a file of the cache; it appears whole, by rename."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with appearing(path, shared=True) as draft, open(draft, "wb", opener=regular) as file:
            np.save(file, pixels)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} cannot be written ({reason}): set {CACHE} to a folder that can") from error
