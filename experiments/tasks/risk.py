"""Empirical risks of linear models with exact gradients and known constants: what theorems on optimisation speak of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from commeff.experiments.tasks.checks import at_least, choose
from commeff.experiments.tasks.libsvm import SOURCES, whole
from commeff.experiments.tasks.local_risks import LOSSES, REGULARISERS, LocalRisks
from commeff.experiments.tasks.partition import split

SYNTHETIC = 1_200, 30  # samples and features of data that need no file


class LocalRisk(torch.autograd.Function):
    """f_i(x) and its gradient, for one worker or, under vmap, for all of them by one sparse product."""

    @staticmethod
    def forward(x: Tensor, worker: Tensor, risks: LocalRisks) -> tuple[Tensor, Tensor]:
        values, gradients = risks.at([int(worker)], x.detach()[None].numpy())
        return torch.from_numpy(values)[0], torch.from_numpy(gradients)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *scales: Tensor) -> tuple[Tensor, None, None]:
        return scales[0] * ctx.saved_tensors[0], None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, worker: Tensor, risks: LocalRisks
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        rows = x if in_dims[0] is not None else x.expand(info.batch_size, -1)
        values, gradients = risks.at(worker.flatten().tolist(), rows.detach().numpy())
        return (torch.from_numpy(values), torch.from_numpy(gradients)), (0, 0)


class LinearPoint(nn.Module):
    """x in R^d, started at zero. forward: f_i(x) of worker i, (1,) -> ()."""

    def __init__(self, risks: LocalRisks) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(risks.d, dtype=torch.float64))
        self._risks = risks

    def forward(self, worker: Tensor) -> Tensor:
        value: Tensor = LocalRisk.apply(self.x, worker, self._risks)[0]
        return value


class Risk:
    """f_i(x) = mean over worker i's samples (a, y) of loss(<x, a>, y) + strength r(x), y in {-1, +1}, from x = 0.

    Every gradient is that of all samples of the worker, so nothing but the method makes noise. float64.

    Parameters
    ----------
    workers : n; the training file is dealt to them, all its rows.
    seed : of the partition.
    data : "a9a", "w8a", "mushrooms" or "ijcnn1"; "synthetic" needs no file.
    data_dir : the folder that holds libsvm/FILE; None: the environment variable COMMEFF_DATA.
    loss : "logistic", log(1 + exp(-y <x, a>)), or "square", (<x, a> - y)^2.
    regulariser : "l2", |x|^2 / 2, or "nonconvex", sum_j x_j^2 / (1 + x_j^2).
    strength : its weight.
    partition : "iid", "dirichlet" (alpha) or "shards" (shards per worker); see `commeff.experiments.tasks.partition`.

    evaluate gives train_loss = f(x), gradient = |grad f(x)|^2 and, where f is convex, val_loss = f(x) - min f, else
    val_loss = f(x). `constants` are L (of f), L_max and L_tilde (largest and root mean square of the L_i), mu (strong
    convexity, or of the square loss without regulariser the constant of Polyak and Lojasiewicz), kappa, d and n.

    Raises
    ------
    DataError: a file is missing, corrupt or cut short.

    >>> task = Risk(workers=4, data="synthetic", strength=0.1)
    >>> 0.1 < task.constants()["mu"] + 1e-9 < task.constants()["L"] <= task.constants()["L_max"]
    True
    """

    size = 0

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        data: str = "synthetic",
        data_dir: str | None = None,
        loss: str = "logistic",
        regulariser: str = "l2",
        strength: float = 1e-3,
        partition: str = "iid",
        alpha: float = 0.3,
        shards: int = 2,
    ) -> None:
        at_least(1, workers=workers)
        at_least(0, seed=seed, strength=strength)
        choose("loss", loss, LOSSES)
        choose("regulariser", regulariser, REGULARISERS)
        if data != "synthetic":
            choose("data", data, {**SOURCES, "synthetic": None})
        inputs, targets = synthetic() if data == "synthetic" else whole(SOURCES[data], data_dir)
        dealt = split(partition, targets, workers, seed, alpha, shards)
        self.workers, self.label = workers, f"{data}, {loss} loss"
        self._risks = LocalRisks(inputs, targets, dealt.indices, loss, regulariser, strength)

    def model(self) -> nn.Module:
        """x = 0."""
        return LinearPoint(self._risks)

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor]:
        """The workers' own numbers, (w, 1): all their samples, at every step."""
        return (torch.tensor([[worker] for worker in workers]),)

    def loss(self, model: Callable[..., Any], *batch: Tensor) -> Tensor:
        """f_i(x)."""
        value: Tensor = model(*batch)
        return value

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """train_loss, gradient and val_loss."""
        value, gradient = self._risks.mean(parameters_to_vector(model.parameters()).detach().double().numpy())
        least = self._risks.least
        gap = value if least is None else max(value - least, 0.0)
        return {"train_loss": value, "val_loss": gap, "gradient": float(gradient @ gradient)}

    def test(self, model: nn.Module) -> dict[str, float]:
        """Nothing: f is known."""
        return {}

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """Nothing: there is no BatchNorm."""
        return ()

    def constants(self) -> Mapping[str, float]:
        """L, L_max, L_tilde, mu, kappa, d and n."""
        return self._risks.constants


def synthetic() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gaussian inputs of falling size, and noisy signs of a linear function of them."""
    rng = np.random.default_rng(0)
    samples, features = SYNTHETIC
    inputs = rng.standard_normal((samples, features)) / np.sqrt(1 + np.arange(features))
    margins = inputs @ rng.standard_normal(features) + 0.5 * rng.standard_normal(samples)
    return inputs, np.where(margins > 0, 1.0, -1.0)
