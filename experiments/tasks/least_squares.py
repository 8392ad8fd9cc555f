"""Least squares with a block of Gaussian rows for each worker: the convex problem of papers on topologies."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from commeff import require
from commeff.experiments.tasks.known import Known, Noise, PointModel


def objective(x: Tensor, hessian: Tensor, pull: Tensor, start: Tensor, noise: Tensor) -> Tensor:
    """F(x) of each (H, p, s, noise): 1/2 x^T H x - p^T x + s + noise^T x, (b,)."""
    return 0.5 * (x * (hessian @ x)).sum(-1) + ((noise - pull) * x).sum(-1) + start


class LeastSquares(Known):
    """f_i(x) = 1/2 |A_i x - b_i|^2 with Gaussian A_i (rows, d); at step k worker i gets grad f_i(x) + xi_ik. float64.

    b_i = A_i x° + s_i with x° ~ N(0, I) and s_i ~ N(0, label_noise^2 I): workers differ in curvature, whose eigenvalues
    spread over rows (1 +- sqrt(d / rows))^2, and little in their optimum. The sums are not divided by `rows`, so the
    curvature of f is near `rows`. This is the problem of EquiTopo, arXiv 2210.07881, at rows = 50, d = 10.

    Parameters
    ----------
    workers : n.
    seed : of the gradient noise, and of the problem unless `data_seed` is given.
    dimension : d.
    rows : of each A_i.
    label_noise : standard deviation of the numbers of s_i.
    sigma : gradient noise, E|xi|^2 = sigma^2, xi Gaussian and a pure function of (seed, step, worker).
    data_seed : of the problem, for runs that repeat one problem with other noise.

    evaluate gives train_loss = f(x), val_loss = f(x) - min f, distance = |x - x*|, relative = |x - x*| / |x*|. A batch
    is (H_i, A_i^T b_i, |b_i|^2 / 2, xi) with H_i = A_i^T A_i.

    >>> task = LeastSquares(workers=4, dimension=3)
    >>> bool((task.hessians.mean(0) @ task.optimum - task.pulls.mean(0)).norm() < 1e-10)
    True
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        dimension: int = 10,
        rows: int = 50,
        label_noise: float = 0.1,
        sigma: float = 0.0,
        data_seed: int | None = None,
    ) -> None:
        problem = seed if data_seed is None else data_seed
        require.at_least(1, workers=workers, dimension=dimension, rows=rows)
        require.at_least(0, seed=seed, label_noise=label_noise, sigma=sigma, data_seed=problem)
        if workers * rows < dimension:
            raise ValueError(
                f"rows must be at least {-(-dimension // workers)}, got {rows}: {workers} workers with fewer rows than "
                f"the {dimension} numbers together have no one optimum; give more"
            )
        self.workers = workers
        rng = np.random.default_rng(problem)
        inputs = rng.standard_normal((workers, rows, dimension))
        labels = inputs @ rng.standard_normal(dimension) + label_noise * rng.standard_normal((workers, rows))
        a, b = torch.from_numpy(inputs), torch.from_numpy(labels)
        self.hessians, self.pulls = a.mT @ a, (a.mT @ b[:, :, None])[:, :, 0]  # (n, d, d), (n, d)
        self._starts = 0.5 * b.square().sum(1)
        self.optimum = torch.linalg.solve(self.hessians.mean(0), self.pulls.mean(0))
        self._tables, self._point = (self.hessians, self.pulls, self._starts), partial(PointModel, objective, dimension)
        self._noise = Noise(seed, workers, dimension, sigma / dimension**0.5)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """train_loss f(x), val_loss f(x) - f(x*), distance |x - x*|, relative |x - x*| / |x*|."""
        x, hessian = parameters_to_vector(model.parameters()).detach().to(self.optimum), self.hessians.mean(0)
        away = x - self.optimum
        least = float(self._starts.mean() - 0.5 * self.pulls.mean(0) @ self.optimum)
        gap = float(0.5 * away @ hessian @ away)
        distance = float(away.norm())
        metrics = {"train_loss": least + gap, "val_loss": gap, "distance": distance}
        return metrics | {"relative": distance / float(self.optimum.norm())}

    def constants(self) -> dict[str, float]:
        """L, mu and kappa of f; L_max of the f_i; d and n; norm = |x*|."""
        spectrum, spectra = torch.linalg.eigvalsh(self.hessians.mean(0)), torch.linalg.eigvalsh(self.hessians)
        constants = {"L": float(spectrum[-1]), "mu": float(spectrum[0]), "L_max": float(spectra.max())}
        constants |= {"kappa": constants["L"] / constants["mu"], "norm": float(self.optimum.norm())}
        return constants | {"d": float(self.optimum.numel()), "n": float(self.workers)}
