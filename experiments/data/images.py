"""Folders of image files: which there are, and their pixels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from commeff.experiments.data.folder import DataError

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def scan(folder: Path) -> tuple[list[str], list[Path], NDArray[np.int64]]:
    """Class names (the sub-folders, sorted), the image files in them, and the class number of each file."""
    _check_links(folder)
    classes = sorted(place.name for place in folder.iterdir() if place.is_dir())
    files = [_images(folder / name) for name in classes]
    empty = [name for name, images in zip(classes, files, strict=True) if not images]
    if empty or not classes:
        reason = f"no image in {', '.join(empty)}" if empty else "it has no sub-folder"
        raise DataError(f"{folder} is no folder of images, one sub-folder a class: {reason}")
    labels = np.repeat(np.arange(len(classes)), [len(images) for images in files])
    return classes, [file for images in files for file in images], labels


def _images(folder: Path) -> list[Path]:
    """The image files of a class, in folders of it too, in order."""
    return [
        Path(place, name)
        for place, _, names in sorted(os.walk(folder, followlinks=True))
        for name in sorted(names)
        if name.lower().endswith(ENDINGS)
    ]


def _check_links(folder: Path) -> None:
    """Refuse a link to a folder that holds the link: the images below it would have no end."""
    for root, folders, _ in os.walk(folder, followlinks=True):
        for link in (path for name in folders if (path := Path(root, name)).is_symlink()):
            target, above = link.resolve(), [Path(root), *Path(root).parents]
            if any(place.resolve().is_relative_to(target) for place in above if place.is_relative_to(folder)):
                raise DataError(f"{link} is a link to {target}, which holds it: remove the link")


def decode(files: list[Path], size: int) -> NDArray[np.uint8]:
    """The images as bytes (N, 3, size, size): the shorter side made `size` long, then the middle cut out."""
    pixels = np.empty((len(files), 3, size, size), np.uint8)
    for image, file in zip(pixels, files, strict=True):
        try:
            with Image.open(file) as opened:
                whole = np.array(opened.convert("RGB")).transpose(2, 0, 1)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(
                f"{file} cannot be read as an image ({' '.join(str(error).split())}): replace it"
            ) from error
        height, width = (int(size * side / min(whole.shape[1:])) for side in whole.shape[1:])
        fit = functional.interpolate(torch.tensor(whole)[None], (height, width), mode="bilinear", antialias=True)
        top, left = round((height - size) / 2), round((width - size) / 2)
        image[:] = fit[0, :, top : top + size, left : left + size]
    return pixels
