"""`commeff bench step`: stacked workers against a loop over copies, and the library against a flat loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import torch
from torch import Tensor, nn

from commeff import Local, Strategy, methods
from commeff.experiments.measure.timing import ratio, time_interleaved
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.subjects import LR, MOMENTUM, SGD, library, mlp
from commeff.replicas import Stacked, Vmapped
from commeff.replicas.stacked import TOGETHER


class Transformer(nn.Module):
    """A byte-level transformer of width 64 with 2 layers."""

    def __init__(self, vocabulary: int = 64, width: int = 64, length: int = 64) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(length, width))
        layers = [nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True) for _ in range(2)]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """(b, t) tokens -> (b * t, vocabulary) logits."""
        return self.head(self.layers(self.embed(tokens) + self.place)).flatten(0, 1)


def cnn() -> nn.Module:
    """Three 3 x 3 convolutions with GroupNorm on 16 x 16 images."""
    sides = [(3, 16), (16, 32), (32, 32)]
    blocks = [(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.ReLU(), nn.MaxPool2d(2)) for a, b in sides]
    return nn.Sequential(*(part for block in blocks for part in block), nn.Flatten(), nn.Linear(128, 10))


@dataclass(frozen=True)
class StepCase:
    """A model, how the batch of one worker is drawn, and the least ratio it has to reach."""

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    at_least: float


SUBJECTS = {
    "mlp": StepCase(partial(mlp, 64, 128, 128), lambda: (torch.randn(32, 64), torch.randint(10, (32,))), 1.4),
    "cnn": StepCase(cnn, lambda: (torch.randn(16, 3, 16, 16), torch.randint(10, (16,))), 0.95),
    "transformer": StepCase(Transformer, lambda: (torch.randint(64, (4, 64)), torch.randint(64, (256,))), 0.95),
}
METHODS = (("local steps", False, lambda: Strategy(Local(SGD))), ("psgd", True, lambda: methods.psgd(SGD)))


def loss(model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Cross entropy of one worker's batch."""
    return nn.functional.cross_entropy(model(x), y)


def naive(model: Callable[[], nn.Module], x: Tensor, y: Tensor, average: bool) -> Callable[[], None]:
    """n copies, n optimizers, gradients averaged tensor by tensor: what a researcher writes first."""
    models = [model() for _ in x]
    optimizers = [SGD(model.parameters()) for model in models]

    def step() -> None:
        for i, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss(model, x[i], y[i]).backward()
        if average:
            for together in zip(*(model.parameters() for model in models), strict=True):
                mean = torch.stack([p.grad for p in together]).mean(0)
                for p in together:
                    p.grad.copy_(mean)
        for optimizer in optimizers:
            optimizer.step()

    return step


def gradients_alone(model: Callable[[], nn.Module], x: Tensor, y: Tensor) -> Callable[[], None]:
    """Forward and backward of n copies and nothing else: what no step can do without."""
    models = [model() for _ in x]
    parameters = [list(model.parameters()) for model in models]

    def step() -> None:
        for i, model in enumerate(models):
            torch.autograd.grad(loss(model, x[i], y[i]), parameters[i])

    return step


def flat(replicas: Stacked, x: Tensor, y: Tensor, average: bool, by_hand: bool = False) -> Callable[[], None]:
    """The least that a flat loop does: one backward into an (n, d) matrix, and one update of all rows.

    The update is that of one torch optimizer on the matrix, or momentum SGD written by hand in two lines.
    """
    parameters, gradients, memory = replicas.parameters, replicas.gradients, torch.zeros_like(replicas.gradients)
    matrix = nn.Parameter(parameters)
    optimizer = SGD([matrix])
    together = max(1, TOGETHER // replicas.layout.d)
    starts = range(0, len(x), together)
    groups = [(replicas.models[i : i + together], x[i : i + together], y[i : i + together]) for i in starts]

    def step() -> None:
        gradients.zero_()
        for models, xs, ys in groups:
            torch.autograd.backward([loss(*one) for one in zip(models, xs, ys, strict=True)])
        direction = gradients.mean(0, keepdim=True).expand_as(gradients) if average else gradients
        if by_hand:
            memory.mul_(MOMENTUM).add_(direction)
            parameters.add_(memory, alpha=-LR)
        else:
            matrix.grad = direction
            optimizer.step()

    return step


def run(workers: int = 16, rounds: int = 24, instances: int = 3) -> Iterator[MeasuredRatio]:
    """Ratios of CPU time of one training step, for local steps and for parallel SGD.

    Two instances of one and the same loop differ by some percent by where their memory lies. So the flat loop and the
    library, which are compared to within 5 %, take turns on the same models, data and parameters, and do so on several
    instances of them, whose times are added.
    """
    for name, subject in SUBJECTS.items():
        x, y = map(torch.stack, zip(*(subject.batch() for _ in range(workers)), strict=True))
        for method, average, make in METHODS:
            stages = [Stacked(subject.model, range(workers)) for _ in range(instances)]
            contestants: dict[str, Callable[[], None]] = {}
            for i, stage in enumerate(stages):
                contestants[f"flat {i}"] = flat(stage, x, y, average)
                contestants[f"library {i}"] = library(stage, make(), loss, repeat((x, y)))
                contestants[f"hand {i}"] = flat(stage, x, y, average, by_hand=True)
            contestants |= {
                "naive": naive(subject.model, x, y, average),
                "alone": gradients_alone(subject.model, x, y),
                "vmap": library(Vmapped(subject.model, range(workers)), make(), loss, repeat((x, y))),
            }
            seconds = time_interleaved(contestants, rounds, calls=2)
            for kind in ("flat", "library", "hand"):
                instance_times = [seconds[f"{kind} {i}"] for i in range(instances)]
                seconds[kind] = [sum(times) / instances for times in zip(*instance_times, strict=True)]
            label = f"{name}, {method}, n={workers}"
            yield MeasuredRatio(label, "naive / library", ratio(seconds, "naive", "library"), subject.at_least)
            yield MeasuredRatio(label, "naive / forward and backward alone", ratio(seconds, "naive", "alone"))
            yield MeasuredRatio(label, "library / flat loop", ratio(seconds, "library", "flat"), at_most=1.05)
            yield MeasuredRatio(label, "library / flat loop without torch.optim", ratio(seconds, "library", "hand"))
            yield MeasuredRatio(label, "naive / library with vmap", ratio(seconds, "naive", "vmap"))
