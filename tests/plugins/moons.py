"""A task in one file: two interleaved half-moons, and a small network that classifies them."""

import torch
from sklearn.datasets import make_moons
from torch import nn
from torch.nn import functional as F

from commeff.experiments.tasks import Samples, Supervised


class Moons(Supervised):
    """Two half-moons in the plane: 800 points for training, 200 for validation."""

    def __init__(self, workers: int, seed: int = 0, noise: float = 0.2, hidden: int = 16, batch: int = 32):
        points, labels = make_moons(1000, noise=noise, random_state=0)
        inputs, targets = torch.from_numpy(points).float(), torch.from_numpy(labels)
        train, validation = Samples(inputs[:800], targets[:800]), Samples(inputs[800:], targets[800:])
        super().__init__(train, validation, workers=workers, seed=seed, batch=batch)
        self.hidden, self.seed = hidden, seed

    def model(self):
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return nn.Sequential(nn.Linear(2, self.hidden), nn.Tanh(), nn.Linear(self.hidden, 2))

    def losses(self, outputs, targets):
        return F.cross_entropy(outputs, targets, reduction="none")

    def hits(self, outputs, targets):
        return outputs.argmax(-1) == targets
