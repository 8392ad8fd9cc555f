"""Labelled samples, and what tasks on them share: the split over workers, batches, the loss, evaluation on all data,
and classification as the usual case.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from commeff import require
from commeff.experiments.tasks.models import has_batch_norm
from commeff.experiments.tasks.partition import split
from commeff.experiments.tasks.sampler import Sampler
from commeff.sharding import Axis

CHUNK = 2**18  # about as many input numbers evaluated at a time: their activations should fit into a cache
CALIBRATION = 2048  # training samples that BatchNorm statistics are estimated on, unless there are fewer
TOGETHER = 256  # about as many of them in a batch


@dataclass(frozen=True, eq=False)
class Samples:
    """inputs (N, ...) and targets (N,), as they are kept; `prepared` makes of inputs what a model is given."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def dtype(self) -> torch.dtype:
        """The type of a model's inputs."""
        return self.inputs.dtype

    def prepared(self, inputs: Tensor) -> Tensor:
        """Kept inputs (..., *shape) as a model is given them: the same, unless a subclass says otherwise."""
        return inputs

    def gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The kept data of the samples at index (w, b): inputs (w, b, ...) and targets (w, b), one gather each."""
        flat = index.flatten()
        inputs = self.inputs.index_select(0, flat).view(*index.shape, *self.inputs.shape[1:])
        return inputs, self.targets.index_select(0, flat).view(index.shape)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The samples at index (w, b), prepared."""
        inputs, targets = self.gather(index)
        return self.prepared(inputs), targets

    def some(self, count: int) -> Self:
        """`count` samples, random but always the same."""
        return self.at(torch.from_numpy(np.random.default_rng(0).permutation(len(self))[:count]))

    def at(self, index: Tensor) -> Self:
        """The samples at index (k,), kept as these are."""
        return replace(self, inputs=self.inputs[index], targets=self.targets[index])

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples in turn, prepared, in chunks of nearly equal numbers, `size` at most."""
        count = -(-len(self) // size)
        pieces = zip(self.inputs.tensor_split(count), self.targets.tensor_split(count), strict=True)
        return ((self.prepared(inputs), targets) for inputs, targets in pieces)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode and no gradients; afterwards every module is in the mode it was in.

    >>> model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3).eval())
    >>> with evaluating(model):
    ...     [module.training for module in model.modules()]
    [False, False, False]
    >>> [module.training for module in model.modules()]
    [True, True, False]
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


class Supervised(ABC):
    """Samples split over n workers, validation samples, a loss per sample. A task adds `model` and `losses`, and `hits`
    where it classifies, or other `measures`.

    Worker i minimises f_i, the mean loss over its own samples. The mean of the f_i is (1/n) sum_i f_i; with
    weighted=True worker i's loss is multiplied by n p_i, p_i = n_i / N, so that the mean becomes sum_i p_i f_i, the
    mean over all samples. A batch is (inputs (w, b, ...), targets (w, b)), and with weighted=True also the factors
    (w, b).

    `partition` says how samples are split over workers: "iid", "dirichlet" with `alpha`, or "shards" (`shards` pieces
    of the data sorted by label for each worker); see `commeff.experiments.tasks.partition`.

    `test` is data that nothing is chosen by, measured once, at the end. `probe` is the number of training samples,
    chosen at random once, on which train_loss is estimated; None: all of them.
    """

    def __init__(
        self,
        train: Samples,
        validation: Samples,
        test: Samples | None = None,
        *,
        workers: int,
        seed: int,
        batch: int,
        partition: str = "iid",
        alpha: float = 0.3,
        shards: int = 2,
        weighted: bool = False,
        probe: int | None = None,
    ) -> None:
        require.at_least(1, workers=workers, batch=batch, probe=len(train) if probe is None else probe)
        require.at_least(0, seed=seed)
        self.label = type(self).__name__  # what a report may call the data
        self.workers, self.size = workers, len(train)
        self.train, self.validation, self.held_back = train, validation, test
        self.probe = train if probe is None or probe >= len(train) else train.some(probe)
        self.partition = split(partition, train.targets.numpy(), workers, seed, alpha, shards)
        self._drawing = batch, seed
        factors = torch.from_numpy(workers * self.partition.weights).to(train.dtype)
        self._factors = factors[:, None].repeat(1, batch) if weighted else None  # (n, b)
        self._liars = 0

    @property
    def sizes(self) -> list[int]:
        """The training samples of each worker."""
        return [int(size) for size in self.partition.sizes]

    @cached_property
    def _sampler(self) -> Sampler:
        """The sampler, made when the first batch is drawn: many tasks are only inspected."""
        return Sampler(self.partition, *self._drawing)

    @abstractmethod
    def model(self) -> nn.Module:
        """A fresh model; the same initial parameters at every call."""

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of each sample, (b,), given the model's outputs."""

    def hits(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Which samples are classified correctly, (b,) bool; None where there are no classes, as in regression."""
        return None

    def flipped(self, targets: Tensor) -> Tensor | None:
        """The labels that liars see: C - 1 - c for c of C classes; None where there are no classes."""
        return None

    def with_liars(self, liars: int) -> Self:
        """The same task, in which the first `liars` workers learn from flipped labels; what is measured stays."""
        if self.flipped(self.train.targets[:1]) is None:
            raise ValueError(
                f"attack=label_flip needs classes, got {type(self).__name__}, which has none: choose another attack, "
                "or define flipped(targets)"
            )
        attacked = copy(self)
        attacked._liars = liars
        return attacked

    def measures(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """The measurements beside the loss, by name: a number of each sample, (b,), of which the mean is taken."""
        hits = self.hits(outputs, targets)
        return {} if hits is None else {"accuracy": hits}

    def class_names(self) -> list[str]:
        """Names of the labels that occur in the training data, in their order."""
        return [f"{label:g}" for label in self.train.targets.unique().tolist()]

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor, ...]:
        """The batch of `workers` at `step`: a pure function of (seed, step, workers)."""
        inputs, targets = self.draw(self._sampler.batch(step, workers), step, workers)
        if self._liars and (flipped := self.flipped(targets)) is not None:
            lies = torch.tensor([worker < self._liars for worker in workers], device=targets.device)
            targets = torch.where(lies[:, None], flipped, targets)
        return (inputs, targets) if self._factors is None else (inputs, targets, self._factors[list(workers)])

    def draw(self, index: Tensor, step: int, workers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The training samples at index (w, b). A task that changes them at random does so here."""
        return self.train.take(index)

    def loss(self, model: Callable[..., Any], *batch: Tensor) -> Tensor:
        """Mean loss of one worker's batch, a scalar. The model is only called, so any function of the inputs does."""
        inputs, targets = self.inputs_targets(*batch)
        return self.criterion(model(*inputs), targets)

    def inputs_targets(self, *batch: Tensor) -> tuple[tuple[Tensor], tuple[Tensor, ...]]:
        """The model's inputs of a batch, and its targets, with factors if it has any."""
        inputs, *targets = batch
        return (inputs,), tuple(targets)

    def criterion(self, outputs: Tensor, targets: tuple[Tensor, ...], vocabulary: Axis | None = None) -> Tensor:
        """Mean loss of a batch, given the model's outputs."""
        if vocabulary is not None:
            raise ValueError("the outputs must be whole, got a part of the classes: leave the last layer whole")
        labels, *factors = targets
        losses = self.losses(outputs, labels)
        return (factors[0] * losses).mean() if factors else losses.mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """train_loss over the probe; val_loss, val_accuracy and other measures over all validation samples."""
        of_validation = self._measure(model, self.validation)
        return {"train_loss": self._measure(model, self.probe)["loss"]} | _named("val", of_validation)

    def test(self, model: nn.Module) -> dict[str, float]:
        """test_loss, test_accuracy and other measures over all test samples; {} if there are none."""
        return {} if self.held_back is None else _named("test", self._measure(model, self.held_back))

    def calibration(self) -> Iterator[tuple[Tensor, ...]]:
        """Training inputs as all workers draw them, in batches (inputs,); nothing if there is no BatchNorm.

        They are the first 2,048 or more, or as many as there are samples. Where training sees cropped images, plain
        ones have other statistics: see results/batch_norm.
        """
        if not has_batch_norm(self.model()):
            return
        batch, _ = self._drawing
        of_a_step = self.workers * batch
        steps, group = -(-min(CALIBRATION, self.size) // of_a_step), max(1, TOGETHER // of_a_step)
        for first in range(0, steps, group):
            drawn = [self.batch(step, range(self.workers))[0] for step in range(first, min(first + group, steps))]
            inputs = torch.cat(drawn).flatten(0, 1)
            for part in inputs.tensor_split(max(1, len(inputs) // TOGETHER)):
                yield (part,)

    def _measure(self, model: nn.Module, samples: Samples) -> dict[str, float]:
        """The mean loss and the means of all measures; the sums over chunks in float64."""
        sums: dict[str, float] = {}
        size = max(1, CHUNK // samples.inputs[0].numel())
        with evaluating(model):
            for inputs, targets in samples.chunks(size):
                outputs = model(inputs)
                values = {"loss": self.losses(outputs, targets)} | self.measures(outputs, targets)
                for name, numbers in values.items():
                    if numbers.shape != targets.shape[:1]:
                        raise ValueError(
                            f"{name} must be a number of each of the {len(targets)} samples, got shape "
                            f"{tuple(numbers.shape)}: give outputs and targets one shape and reduction='none', then "
                            "the mean over all axes but the first"
                        )
                    sums[name] = sums.get(name, 0.0) + float(numbers.sum(dtype=torch.float64))
        return {name: total / len(samples) for name, total in sums.items()}


def _named(data: str, measures: dict[str, float]) -> dict[str, float]:
    return {f"{data}_{name}": value for name, value in measures.items()}
