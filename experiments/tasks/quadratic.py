"""Heterogeneous quadratics: the task whose optimum, heterogeneity and noise are known exactly."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from commeff import require
from commeff.compressors.scratch import bands, tile_size
from commeff.experiments.tasks.known import Known, Noise, PointModel
from commeff.experiments.tasks.models import DTYPES


def objective(x: Tensor, curvature: Tensor, centre: Tensor, noise: Tensor) -> Tensor:
    """F(x) of each (curvature, centre, noise), (b, d) -> (b,)."""
    return (0.5 * curvature * (x - centre).square() + noise * x).sum(-1)


class Quadratic(Known):
    """f_i(x) = 1/2 (x - b_i)^T A_i (x - b_i), A_i diagonal; at step k worker i gets the gradient A_i (x - b_i) + xi_ik.

    The optimum of f = (1/n) sum_i f_i is x* = (sum_i A_i)^-1 sum_i A_i b_i. It is drawn first, x* ~ N(0, I), and the
    centres follow from b_i = x* - h_i / A_i with random h_i, sum_i h_i = 0: h_i is the gradient of f_i at x*, so
    heterogeneity is set exactly.

    Parameters
    ----------
    workers : n.
    seed : of the problem and of its noise.
    dimension : d.
    condition : L / mu of every A_i; its eigenvalues are spaced evenly in logarithm from L = 1 down to 1 / condition.
    equal_curvature : the same A for all workers (the closed forms of gossip need it); else every worker has its own
        order of the eigenvalues.
    zeta : heterogeneity, zeta^2 = (1/n) sum_i |grad f_i(x*)|^2. One worker has none.
    sigma : gradient noise, E|xi|^2 = sigma^2, xi Gaussian and a pure function of (seed, step, worker).
    dtype : "float32" or "float64".
    columns : more than 1 make x a matrix of so many, for methods that see matrices; d must be a multiple.

    evaluate gives train_loss = f(x), val_loss = f(x) - f(x*) = 1/2 (x - x*)^T mean(A) (x - x*) without cancellation,
    distance = |x - x*|. A batch is (A_i, b_i, xi), each (w, 1, d).

    >>> task = Quadratic(workers=4, dimension=3, zeta=2.0)
    >>> gradients = task.curvatures * (task.optimum - task.centres)
    >>> bool(gradients.mean(0).norm() < 1e-14), round(float(gradients.square().sum(1).mean().sqrt()), 12)
    (True, 2.0)
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        dimension: int = 20,
        condition: float = 10.0,
        equal_curvature: bool = False,
        zeta: float = 1.0,
        sigma: float = 0.0,
        dtype: str = "float64",
        columns: int = 1,
    ) -> None:
        require.at_least(1, workers=workers, dimension=dimension, condition=condition, columns=columns)
        require.at_least(0, seed=seed, zeta=zeta, sigma=sigma)
        self.workers = workers
        self.dtype = require.choose(DTYPES, dtype=dtype)
        if dimension % columns:
            raise ValueError(
                f"columns must divide dimension, got {columns} and {dimension}: x is a matrix of them; give another"
            )
        shape = (dimension // columns, columns) if columns > 1 else (dimension,)
        self._point = partial(PointModel, objective, *shape, dtype=self.dtype)
        rng = np.random.default_rng(seed)
        optimum = rng.standard_normal(dimension)
        pull = rng.standard_normal((workers, dimension))
        pull -= pull.mean(0)
        spread = np.sqrt(np.mean([np.square(row).sum() for row in pull]))  # row by row, without a copy of all
        pull *= zeta / spread if workers > 1 else 0.0
        curvatures = np.tile(np.logspace(0, -np.log10(condition), dimension), (workers, 1))
        if not equal_curvature:
            rng.permuted(curvatures, axis=1, out=curvatures)
        centres = np.subtract(optimum, np.divide(pull, curvatures, out=pull), out=pull)

        self.curvatures = torch.from_numpy(curvatures).to(self.dtype)  # (n, d)
        self.centres = torch.from_numpy(centres).to(self.dtype)  # (n, d)
        self._tables = self.curvatures, self.centres
        pulls = [
            (self.curvatures[:, band] * self.centres[:, band]).sum(0)
            for band in bands(workers, dimension, self.centres.device)
        ]
        self.optimum = torch.cat(pulls) / self.curvatures.sum(0)  # (d,)
        self._noise = Noise(seed, workers, dimension, sigma / dimension**0.5, self.dtype)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """train_loss f(x), val_loss f(x) - f(x*), distance |x - x*|."""
        x = parameters_to_vector(model.parameters()).detach().to(self.optimum)
        away, some = x - self.optimum, max(1, tile_size(x.device) // x.numel())
        pairs = zip(self.curvatures.split(some), self.centres.split(some), strict=True)
        twice = torch.cat([(curvatures * (x - centres).square()).sum(1) for curvatures, centres in pairs])
        return {
            "train_loss": float(0.5 * twice.mean()),
            "val_loss": float(0.5 * (self.curvatures.mean(0) * away.square()).sum()),
            "distance": float(away.norm()),
        }

    def constants(self) -> dict[str, float]:
        """L, mu and kappa of f; L_max of the f_i; d and n."""
        mean = self.curvatures.mean(0)
        values = {"L": float(mean.max()), "mu": float(mean.min()), "L_max": float(self.curvatures.max())}
        return values | {"kappa": values["L"] / values["mu"], "d": float(mean.numel()), "n": float(self.workers)}
