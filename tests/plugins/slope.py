"""A regression task with its own metric."""

import torch
from torch import nn

from commeff.experiments.tasks import Samples, Supervised


class Slope(Supervised):
    """Points on a noisy line: 400 for training, 100 for validation, 100 for testing."""

    def __init__(self, workers: int, seed: int = 0, batch: int = 16):
        x = torch.linspace(-1, 1, 600)[torch.randperm(600, generator=torch.Generator().manual_seed(1)), None]
        y = 3 * x[:, 0] + 0.1 * torch.randn(600, generator=torch.Generator().manual_seed(2))
        parts = [Samples(x[a:b], y[a:b]) for a, b in ((0, 400), (400, 500), (500, 600))]
        super().__init__(*parts, workers=workers, seed=seed, batch=batch)

    def model(self):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return nn.Linear(1, 1)

    def losses(self, outputs, targets):
        return (outputs[:, 0] - targets).square()

    def measures(self, outputs, targets):
        return {"distance": (outputs[:, 0] - targets).abs()}
