"""The small networks of the image tasks, as plain `nn.Sequential`s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd

import torch
from torch import nn

from commeff import require

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}  # of models and their inputs


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
    norm = require.choose(NORMS, norm=network.norm)
    return nn.Sequential(
        *(nn.Conv2d(network.channels, 16, 3, padding=1), norm(16, nn.BatchNorm2d), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), norm(32, nn.BatchNorm2d), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *_head(network, 32 * (network.size // 4) ** 2),
    )


def _head(network: NetworkSettings, inputs: int) -> list[nn.Module]:
    norm = require.choose(NORMS, norm=network.norm)
    return [
        nn.Linear(inputs, network.width),
        norm(network.width, nn.BatchNorm1d),
        nn.ReLU(),
        nn.Dropout(network.dropout),
        nn.Linear(network.width, network.classes),
    ]


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
    return any(isinstance(module, BatchNorm) for module in model.modules())


BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d

# (channels, which BatchNorm) -> layer. Groups: eight where the channels allow.
NORMS: dict[str, Callable[[int, type[BatchNorm]], nn.Module]] = {
    "none": lambda channels, batch_norm: nn.Identity(),
    "batch": lambda channels, batch_norm: batch_norm(channels),
    "group": lambda channels, batch_norm: nn.GroupNorm(gcd(channels, 8), channels),
}

MODELS: dict[str, Callable[[NetworkSettings], nn.Sequential]] = {"linear": linear, "mlp": mlp, "cnn": cnn}
