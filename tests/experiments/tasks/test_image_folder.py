"""Images of your own: decoded once, made square, scaled by their own statistics; one-line refusals."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from commeff.experiments.data import images
from commeff.experiments.data.images import scan
from commeff.experiments.tasks import DataError, ImageFolder
from tests.experiments.tasks import image_files


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMEFF_CACHE", str(tmp_path / "cache"))


def test_a_folder_is_scaled_by_the_statistics_of_its_training_images(tmp_path: Path) -> None:
    folder = image_files.image_folder(tmp_path, parts=("train", "val", "test"))
    task = ImageFolder(2, path=folder, size=12, model="linear", dtype="float64")
    inputs = task.train.prepared(task.train.inputs)
    torch.testing.assert_close(inputs.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(inputs.var((0, 2, 3), correction=0), torch.ones(3).double())
    assert (len(task.train), len(task.validation)) == (40, 12)
    with pytest.raises(ValueError, match="has a validation set of its own"):
        ImageFolder(2, path=folder, size=12, validation=8)


def test_images_are_decoded_once_and_again_when_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = images.decode
    monkeypatch.setattr(images, "decode", lambda files, size: decoded.append(len(files)) or decode(files, size))
    folder = Path(image_files.image_folder(tmp_path / "mine"))
    there = sorted(folder.rglob("*"))
    first, again = (ImageFolder(2, path="mine", data_dir=str(tmp_path), size=8, model="linear") for _ in range(2))
    assert decoded == [40, 12]
    assert torch.equal(first.train.inputs, again.train.inputs)
    assert sorted(folder.rglob("*")) == there
    Image.new("RGB", (9, 9), (255, 0, 0)).save(folder / "train" / "class_0" / "0.png")
    changed = ImageFolder(2, path="mine", data_dir=str(tmp_path), size=8, model="linear")
    assert decoded == [40, 12, 40]
    assert not torch.equal(changed.train.inputs, first.train.inputs)
    ImageFolder(2, path="mine", data_dir=str(tmp_path), size=6, model="linear")
    assert decoded == [40, 12, 40, 40, 12]


def test_the_cache_is_made_anew_when_it_is_damaged(tmp_path: Path) -> None:
    folder = image_files.image_folder(tmp_path / "mine")
    good = ImageFolder(2, path=folder, size=8, model="linear").train.inputs
    for file in (tmp_path / "cache").rglob("*.npy"):
        file.write_bytes(file.read_bytes()[:-7])
    assert torch.equal(ImageFolder(2, path=folder, size=8, model="linear").train.inputs, good)


def test_a_long_image_is_made_square_around_its_middle(tmp_path: Path) -> None:
    folder = Path(image_files.image_folder(tmp_path, side=4))
    stripes = np.zeros((4, 12, 3), np.uint8)
    stripes[:, 4:8] = (10, 20, 30)
    Image.fromarray(stripes).save(folder / "train" / "class_0" / "0.png")
    task = ImageFolder(2, path=str(folder), size=4, model="linear", validation=4)
    images = torch.cat([task.train.inputs, task.validation.inputs])
    middle = torch.tensor([10, 20, 30], dtype=torch.uint8).view(3, 1, 1)
    assert (images == middle).flatten(1).all(1).sum() == 1


@pytest.mark.parametrize("shape", [(31, 48), (48, 31), (9, 9)])
def test_a_large_image_is_made_small_as_pillow_does(shape: tuple[int, int], tmp_path: Path) -> None:
    """To a level of 255: it rounds sums in another order."""
    noise = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "0.png")
    small = images.decode([tmp_path / "0.png"], 8)[0].transpose(1, 2, 0)
    height, width = (8 * side // min(shape) for side in shape)
    whole = np.asarray(Image.fromarray(noise).resize((width, height), Image.Resampling.BILINEAR))
    top, left = (height - 8) // 2, (width - 8) // 2
    assert np.abs(small.astype(int) - whole[top : top + 8, left : left + 8]).max() <= 1


def _broken(folder: Path) -> None:
    next((folder / "test" / "class_1").glob("*.png")).write_bytes(b"no image")


def _other_classes(folder: Path) -> None:
    (folder / "test" / "class_1").rename(folder / "test" / "class_9")


def _no_test(folder: Path) -> None:
    (folder / "test").rename(folder / "tests")


def _empty_class(folder: Path) -> None:
    (folder / "train" / "class_8").mkdir()


def _no_class(folder: Path) -> None:
    shutil.rmtree(folder / "train")
    (folder / "train").mkdir()


def _bomb(folder: Path) -> None:
    """An image that says it is huge."""
    (folder / "train" / "class_0" / "0.ppm").write_bytes(b"P6 99999 99999 255\n")


def _blocked_cache(folder: Path) -> None:
    (folder.parent / "cache").write_text("a file where the folder should be")


def _link_to_all(folder: Path) -> None:
    (folder / "train" / "class_0" / "again").symlink_to(folder)


def _links_in_a_circle(folder: Path) -> None:
    for one, other in ((0, 1), (1, 0)):
        (folder / "test" / f"class_{one}" / "other").symlink_to(folder / "test" / f"class_{other}")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_link_to_all, "class_0/again is a link to .*, which holds it: remove the link"),
        (_links_in_a_circle, "class_./other/other is a link to .*class_., which holds it"),
        (_broken, "cannot be read as an image"),
        (_other_classes, "do not hold the same classes; they differ in .'class_1', 'class_9'"),
        (_no_test, "no folder .*test: an image folder holds train/CLASS/FILE"),
        (_empty_class, "no folder of images, one sub-folder a class: no image in class_8"),
        (_no_class, "no folder of images, one sub-folder a class: it has no sub-folder"),
        (_bomb, "cannot be read as an image .Image size .* exceeds limit"),
        (_blocked_cache, "cannot be written .*: set COMMEFF_CACHE"),
    ],
)
def test_a_bad_image_folder_is_refused_in_one_line(spoil: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    folder = Path(image_files.image_folder(tmp_path / "mine", side=4))
    spoil(folder)
    with pytest.raises(DataError, match=reason) as refusal:
        ImageFolder(2, path=str(folder), size=4)
    assert "\n" not in str(refusal.value)


def test_images_behind_links_are_read(tmp_path: Path) -> None:
    folder = Path(image_files.image_folder(tmp_path / "mine", side=4))
    (folder / "train" / "class_0").rename(tmp_path / "elsewhere")
    (folder / "train" / "class_0").symlink_to(tmp_path / "elsewhere")
    (folder / "train" / "class_1" / "more").symlink_to(tmp_path / "elsewhere")
    classes, files, _ = scan(folder / "train")
    assert "class_0" in classes
    assert len(files) == len({*files}) > len({file.resolve() for file in files})
