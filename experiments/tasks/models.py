"""The networks of the image tasks, as plain `nn.Sequential`s.

Residual networks are those of He et al., "Deep Residual Learning for Image Recognition", arXiv 1512.03385. ResNet-8, 20
and 56 are those of section 4.2: three stages of 16, 32 and 64 channels on images of 32, 16 and 8 pixels, with 2n layers
each (n = 1, 3, 9), and shortcuts without parameters (option A). ResNet-18 is that of table 1 with the stem that small
images need, a 3 x 3 convolution and no pooling, and shortcuts by projection (option B).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff import require

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}  # of models and their inputs
BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d

# (channels, which BatchNorm) -> layer. Groups: eight where the channels allow.
NORMS: dict[str, Callable[[int, type[BatchNorm]], nn.Module]] = {
    "none": lambda channels, batch_norm: nn.Identity(),
    "batch": lambda channels, batch_norm: batch_norm(channels),
    "group": lambda channels, batch_norm: nn.GroupNorm(gcd(channels, 8), channels),
}


@dataclass(frozen=True)
class NetworkSettings:
    """The settings that decide the shape of a network.

    size: side of the square image.   width: units of the last hidden layer; of a ResNet, channels of its first stage.
    """

    channels: int
    size: int
    classes: int
    width: int = 64
    norm: str = "none"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        require.at_least(1, width=self.width)
        require.one_of(NORMS, norm=self.norm)
        require.within("[0, 1)", dropout=self.dropout)


def linear(network: NetworkSettings) -> nn.Sequential:
    """Multinomial logistic regression.

    >>> sum(p.numel() for p in linear(NetworkSettings(channels=1, size=8, classes=10)).parameters())
    650
    """
    if network.norm != NetworkSettings.norm or network.dropout:
        raise ValueError(
            "model linear has no hidden layer: norm and dropout do not apply, so leave them out or use mlp or cnn"
        )
    return nn.Sequential(nn.Flatten(), nn.Linear(network.channels * network.size**2, network.classes))


def mlp(network: NetworkSettings) -> nn.Sequential:
    """One hidden layer: linear, norm, ReLU, dropout, linear."""
    return nn.Sequential(nn.Flatten(), *_head(network, network.channels * network.size**2))


def cnn(network: NetworkSettings) -> nn.Sequential:
    """Two 3 x 3 convolutions (16, 32 channels), each with norm, ReLU and 2 x 2 max pooling, then the head of `mlp`."""
    norm = NORMS[network.norm]
    return nn.Sequential(
        *(nn.Conv2d(network.channels, 16, 3, padding=1), norm(16, nn.BatchNorm2d), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), norm(32, nn.BatchNorm2d), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *_head(network, 32 * (network.size // 4) ** 2),
    )


def _head(network: NetworkSettings, inputs: int) -> list[nn.Module]:
    return [
        nn.Linear(inputs, network.width),
        NORMS[network.norm](network.width, nn.BatchNorm1d),
        nn.ReLU(),
        nn.Dropout(network.dropout),
        nn.Linear(network.width, network.classes),
    ]


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
        super().__init__(nn.Conv2d(inputs, outputs, 1, stride, bias=False), NORMS[norm](outputs, nn.BatchNorm2d))


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions, each with a norm, added to the shortcut: relu(shortcut(x) + F(x))."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, shortcut: Shortcut) -> None:
        super().__init__()
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else shortcut(inputs, outputs, stride, norm)
        self.residual = nn.Sequential(
            *(_conv(inputs, outputs, stride), NORMS[norm](outputs, nn.BatchNorm2d), nn.ReLU()),
            *(_conv(outputs, outputs, 1), NORMS[norm](outputs, nn.BatchNorm2d)),
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
    stem = (_conv(network.channels, width, 1), NORMS[network.norm](width, nn.BatchNorm2d), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, network.classes))
    model = nn.Sequential(*stem, *layers, *head)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def _conv(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


@dataclass(frozen=True)
class Architecture:
    """A kind of network, with the width and the norm it has unless said otherwise."""

    build: Callable[[NetworkSettings], nn.Module]
    width: int = NetworkSettings.width
    norm: str = NetworkSettings.norm


def _small(*blocks: int) -> Architecture:
    return Architecture(partial(resnet, blocks=blocks, shortcut=Subsampled), width=16, norm="group")


MODELS: dict[str, Callable[[NetworkSettings], nn.Sequential]] = {"linear": linear, "mlp": mlp, "cnn": cnn}
ARCHITECTURES: Mapping[str, Architecture] = {
    **{name: Architecture(build) for name, build in MODELS.items()},
    "resnet8": _small(1, 1, 1),
    "resnet20": _small(3, 3, 3),
    "resnet56": _small(9, 9, 9),
    "resnet18": Architecture(partial(resnet, blocks=(2, 2, 2, 2), shortcut=Projected), width=64, norm="group"),
}


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """`build()` with torch's CPU generator at `seed`; the generator is left as it was found.

    >>> torch.equal(seeded(lambda: nn.Linear(2, 2), 1).weight, seeded(lambda: nn.Linear(2, 2), 1).weight)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build()


def has_batch_norm(model: nn.Module) -> bool:
    """Has the model BatchNorm layers, and so statistics that evaluation depends on?"""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
