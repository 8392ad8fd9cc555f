"""Augmentation: every crop is a window of the padded image, half of the images are mirrored, rows do not meet."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from commeff.experiments.tasks.vision import AUGMENTATIONS, PAD, crop, crop_flip, flipped, stream, windows

SIDE = 6
every_augmentation = pytest.mark.parametrize("name", AUGMENTATIONS)


def images(workers: int, batch: int, channels: int = 2) -> Tensor:
    """Distinct bytes in every pixel of a channel, none of them 0, so a window is known by what it shows."""
    one = torch.arange(1, channels * SIDE * SIDE + 1).view(channels, SIDE, SIDE)
    return one.byte().repeat(workers, batch, 1, 1, 1)


def places(changed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each image (k, c, h, h): top, left and whether mirrored, found among all 162 possibilities."""
    whole = F.pad(images(1, 1)[0], (PAD,) * 4)
    count = 2 * PAD + 1
    every = whole.unfold(2, SIDE, 1).unfold(3, SIDE, 1)[0].permute(1, 2, 0, 3, 4).flatten(0, 1)
    both = torch.cat([every, every.flip(-1)])
    same = (both[None] == changed[:, None]).flatten(2).all(-1)
    assert same.any(1).all(), "an image is no window of the padded one"
    place = same.byte().argmax(1)
    return place % (count * count) // count, place % count, place >= count * count


def test_a_window_is_the_slice_of_the_padded_image() -> None:
    given = images(1, 1)
    padded = F.pad(given, (PAD,) * 4)
    for top in range(2 * PAD + 1):
        for left in range(2 * PAD + 1):
            cut = windows(given, torch.tensor([[top]]), torch.tensor([[left]]))
            assert torch.equal(cut, padded[..., top : top + SIDE, left : left + SIDE])


def test_each_image_gets_its_own_window() -> None:
    given = torch.randint(0, 256, (3, 4, 1, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    top, left = torch.arange(12).view(3, 4) % 9, torch.arange(12).view(3, 4) * 5 % 9
    together = windows(given, top, left)
    for worker in range(3):
        for position in range(4):
            here = slice(worker, worker + 1), slice(position, position + 1)
            assert torch.equal(together[here], windows(given[here], top[here], left[here]))


def test_corners_are_uniform_and_half_of_the_images_are_mirrored() -> None:
    count = 4000
    changed = crop_flip(images(8, count // 8), stream(0, 3, range(8))).flatten(0, 1)
    top, left, mirrored = places(changed)
    assert abs(mirrored.double().mean() - 0.5) < 4 * 0.5 / math.sqrt(count)
    for offsets in (top, left):
        expected = count / (2 * PAD + 1)
        assert (offsets.bincount(minlength=9) - expected).abs().max() < 4 * math.sqrt(expected)
    pairs = torch.stack([top, left, mirrored]).double()
    off_diagonal = torch.corrcoef(pairs) - torch.eye(3)
    assert off_diagonal.abs().max() < 4 / math.sqrt(count)


def test_crop_mirrors_nothing_and_flipping_twice_is_nothing() -> None:
    given = images(2, 50)
    assert not places(crop(given, stream(0, 0, range(2))).flatten(0, 1))[2].any()
    mirrored = torch.arange(100).view(2, 50) % 3 == 0
    assert torch.equal(flipped(flipped(given, mirrored), mirrored), given)
    assert torch.equal(flipped(given, mirrored)[~mirrored], given[~mirrored])


@every_augmentation
def test_a_row_is_the_same_whoever_else_is_hosted_here(name: str) -> None:
    augment, given = AUGMENTATIONS[name], images(8, 5)
    together = augment(given, stream(1, 7, range(8)))
    assert together.dtype == torch.uint8
    assert together.shape == given.shape
    for workers in ([0], [7, 2], [3, 4, 5]):
        assert torch.equal(augment(given[workers], stream(1, 7, workers)), together[workers])


def test_seed_step_worker_and_position_all_count() -> None:
    given = images(2, 40)
    one = crop(given, stream(0, 0, [0, 1]))
    for other in (stream(1, 0, [0, 1]), stream(0, 1, [0, 1]), stream(0, 0, [2, 3])):
        assert (crop(given, other) != one).flatten(2).any(-1).double().mean() > 0.9
    assert len(one[0].unique(dim=0)) > 20


def test_none_changes_nothing() -> None:
    given = images(2, 3)
    assert torch.equal(AUGMENTATIONS["none"](given, stream(0, 0, [0, 1])), given)
