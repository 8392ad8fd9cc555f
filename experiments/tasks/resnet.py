"""Residual networks for small images (He et al., "Deep Residual Learning for Image Recognition", arXiv 1512.03385).

ResNet-8, 20 and 56 are those of section 4.2: three stages of 16, 32 and 64 channels on images of 32, 16 and 8 pixels,
with 2n layers each (n = 1, 3, 9), and shortcuts without parameters (option A). ResNet-18 is that of table 1 with the
stem that small images need, a 3 x 3 convolution and no pooling, and shortcuts by projection (option B).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff import require
from commeff.experiments.tasks.models import NORMS, NetworkSettings

Shortcut = Callable[[int, int, int, str], nn.Module]


class Subsampled(nn.Module):
    """Option A: every stride-th pixel, and zeros for the channels that are new, half of them in front."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        front = (outputs - inputs) // 2
        self._stride, self._zeros = stride, (0, 0, 0, 0, front, outputs - inputs - front)

    def forward(self, images: Tensor) -> Tensor:
        return F.pad(images[..., :: self._stride, :: self._stride], self._zeros)


class Projected(nn.Sequential):
    """Option B: a 1 x 1 convolution with a norm."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(norm, outputs))


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions, each with a norm, added to the shortcut: relu(shortcut(x) + F(x))."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, shortcut: Shortcut) -> None:
        super().__init__()
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else shortcut(inputs, outputs, stride, norm)
        self.residual = nn.Sequential(
            *(_conv(inputs, outputs, stride), _norm(norm, outputs), nn.ReLU()),
            *(_conv(outputs, outputs, 1), _norm(norm, outputs)),
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.shortcut(images) + self.residual(images))


def resnet(network: NetworkSettings, blocks: Sequence[int], shortcut: Shortcut) -> nn.Sequential:
    """A stem, stages of `blocks` blocks that halve the image and double the channels, the mean over pixels, a linear
    layer.

    Convolutions start from N(0, 2 / fan out) (He et al., arXiv 1502.01852), norms as the identity, the last layer as
    torch makes it.

    >>> narrow = NetworkSettings(channels=3, size=32, classes=10, width=16, norm="batch")
    >>> sum(p.numel() for p in resnet(narrow, (3, 3, 3), Subsampled).parameters())
    269722
    """
    if network.norm == "none" or network.dropout:
        raise ValueError("a ResNet needs a norm and has no dropout: set norm=batch or norm=group, and dropout=0")
    if network.size < 2 ** (len(blocks) - 1):
        raise ValueError(f"{len(blocks)} stages of a ResNet halve images of {network.size} pixels to nothing: use mlp")
    width, layers = network.width, list[nn.Module]()
    inputs = width
    for stage, count in enumerate(blocks):
        outputs = width * 2**stage
        for first in (True, *[False] * (count - 1)):
            layers.append(ResidualBlock(inputs, outputs, 2 if first and stage else 1, network.norm, shortcut))
            inputs = outputs
    stem = (_conv(network.channels, width, 1), _norm(network.norm, width), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, network.classes))
    model = nn.Sequential(*stem, *layers, *head)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _conv(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def _norm(name: str, channels: int) -> nn.Module:
    return require.choose(NORMS, norm=name)(channels, nn.BatchNorm2d)
