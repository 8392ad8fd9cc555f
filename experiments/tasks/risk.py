"""Empirical risks of linear models with exact gradients and known constants: what theorems on optimisation speak of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from commeff import require
from commeff.experiments.tasks.known import Known, Noise, PointModel
from commeff.experiments.tasks.libsvm import SOURCES, SYNTHETIC, synthetic, whole
from commeff.experiments.tasks.local_risks import LOSSES, REGULARISERS, LocalRisks
from commeff.experiments.tasks.partition import split


class LocalRisk(torch.autograd.Function):
    """f_i(x) and its gradient, for one worker or, under vmap, for all of them by one sparse product."""

    @staticmethod
    def forward(x: Tensor, worker: Tensor, risks: LocalRisks) -> tuple[Tensor, Tensor]:
        values, gradients = risks.at([int(worker)], x.detach()[None].double().numpy())
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


def objective(risks: LocalRisks, x: Tensor, worker: Tensor, noise: Tensor) -> Tensor:
    """f_i(x) + <noise, x> of worker i, (1,) and (d,) -> ()."""
    value: Tensor = LocalRisk.apply(x, worker, risks)[0] + (noise * x).sum()
    return value


class Risk(Known):
    """f_i(x) = mean over worker i's samples (a, y) of loss(<x, a>, y) + strength r(x), y in {-1, +1}, from x = 0.

    Every gradient is that of all samples of the worker, plus Gaussian noise if asked. float64.

    Parameters
    ----------
    workers : n; the training file is dealt to them, all its rows.
    seed : of the partition, and of the gradient noise.
    data : "a9a", "w8a", "mushrooms" or "ijcnn1"; "synthetic" and "drawn" need no file. In "drawn" each worker has
        samples of its own: a ~ N(0, I), and y = 1 with the probability 1 / (1 + exp(-<x_i, a>)), where x_i is
        x° + drift N(0, I), x° ~ N(0, I). This is the problem of EquiTopo's gradient tracking, arXiv 2210.07881.
    data_dir : the folder that holds libsvm/FILE; None: the environment variable COMMEFF_DATA.
    loss : "logistic", log(1 + exp(-y <x, a>)), or "square", (<x, a> - y)^2.
    regulariser : "l2", |x|^2 / 2, or "nonconvex", sum_j x_j^2 / (1 + x_j^2).
    strength : its weight.
    partition : "iid", "dirichlet" (alpha) or "shards" (shards per worker); see `commeff.experiments.tasks.partition`.
    rows, dimension, drift : of "drawn": samples of each worker, d, and how far the x_i lie apart.
    sigma : gradient noise, E|xi|^2 = sigma^2, xi Gaussian and a pure function of (seed, step, worker).

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
        rows: int = 1000,
        dimension: int = 10,
        drift: float = 0.2,
        sigma: float = 0.0,
    ) -> None:
        require.at_least(1, workers=workers, rows=rows, dimension=dimension)
        require.at_least(0, seed=seed, strength=strength, drift=drift, sigma=sigma)
        require.one_of(LOSSES, loss=loss)
        require.one_of(REGULARISERS, regulariser=regulariser)
        made = {SYNTHETIC: synthetic, "drawn": lambda: drawn(workers, rows, dimension, drift)}
        require.one_of({**SOURCES, **made}, data=data)
        inputs, targets = made[data]() if data in made else whole(SOURCES[data][0], data_dir)
        blocks = [*np.arange(workers * rows).reshape(workers, rows)]
        indices = blocks if data == "drawn" else split(partition, targets, workers, seed, alpha, shards).indices
        self.workers, self.label = workers, f"{data}, {loss} loss"
        self._risks = LocalRisks(inputs, targets, indices, loss, regulariser, strength)
        self._tables = [torch.arange(workers)]  # the number of a worker stands for all its samples
        self._point = partial(PointModel, partial(objective, self._risks), self._risks.d)
        self._noise = Noise(seed, workers, self._risks.d, sigma / self._risks.d**0.5)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """train_loss, gradient and val_loss."""
        value, gradient = self._risks.mean(parameters_to_vector(model.parameters()).detach().double().numpy())
        least = self._risks.least
        gap = value if least is None else max(value - least, 0.0)
        return {"train_loss": value, "val_loss": gap, "gradient": float(gradient @ gradient)}

    def constants(self) -> Mapping[str, float]:
        """L, L_max, L_tilde, mu, kappa, d and n."""
        return self._risks.constants


def drawn(workers: int, rows: int, dimension: int, drift: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gaussian inputs whose labels follow a logistic model of each worker's own; a worker's rows lie together."""
    rng = np.random.default_rng(0)
    models = rng.standard_normal(dimension) + drift * rng.standard_normal((workers, dimension))
    inputs = rng.standard_normal((workers, rows, dimension))
    likely = 1 / (1 + np.exp(-np.einsum("nrd,nd->nr", inputs, models)))
    targets = np.where(rng.random((workers, rows)) < likely, 1.0, -1.0)
    return inputs.reshape(-1, dimension), targets.ravel()
