"""Tasks that break a law, each in its own way."""

import torch

from commeff.experiments.tasks import Quadratic


class DrawsForWhoIsHere(Quadratic):
    """One generator for all rows that are asked for: a row's samples depend on the rows before it."""

    def batch(self, step, workers):
        a, b, _ = super().batch(step, workers)
        noise = torch.randn(a.shape, generator=torch.Generator().manual_seed(step), dtype=a.dtype)
        return a, b, noise


class CountsItsBatches(Quadratic):
    """The minibatch depends on how many were drawn before."""

    drawn = 0

    def batch(self, step, workers):
        self.drawn += 1
        return super().batch(self.drawn, workers)

    def __init__(self, workers: int, seed: int = 0):
        super().__init__(workers, seed, sigma=1.0)


class UnseededModel(Quadratic):
    """Another initial point at every call."""

    def model(self):
        model = super().model()
        torch.nn.init.normal_(model.x)
        return model


class LossForEachSample(Quadratic):
    """A vector of losses."""

    def loss(self, model, *batch):
        return model(*batch)


class DetachedLoss(Quadratic):
    """A number without a gradient."""

    def loss(self, model, *batch):
        return super().loss(model, *batch).detach()


class EvaluatesToNothing(Quadratic):
    """No train_loss."""

    def evaluate(self, model):
        return {"val_loss": 1.0}


class ForgetsItsWorkers(Quadratic):
    """One number short."""

    def __init__(self, workers: int, seed: int = 0):
        super().__init__(workers, seed)
        self.workers = workers - 1


class Unfinished:
    """Half a task."""

    def model(self):
        return torch.nn.Linear(1, 1)

    def batch(self, step, workers):
        return (torch.zeros(len(workers), 1, 1),)

    def loss(self, model, *batch):
        return model(*batch).mean()
