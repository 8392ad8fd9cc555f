"""The risks of n workers' samples: values and gradients by sparse products, their constants and their minimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
NEWTON = 60  # steps at most
SMALL = 1e-9  # of the largest eigenvalue: below, one is zero


def _logistic(margins: Vector, targets: Vector) -> tuple[Vector, Vector]:
    signed = targets * margins
    return np.logaddexp(0.0, -signed), -targets / (1.0 + np.exp(np.minimum(signed, 700.0)))


def _square(margins: Vector, targets: Vector) -> tuple[Vector, Vector]:
    return (margins - targets) ** 2, 2 * (margins - targets)


# Value and derivative by the margin <x, a>; and the largest second derivative.
LOSSES: Mapping[str, tuple[Callable[[Vector, Vector], tuple[Vector, Vector]], float]] = {
    "logistic": (_logistic, 0.25),
    "square": (_square, 2.0),
}
# Value of each coordinate and derivative; and the largest second derivative.
REGULARISERS: Mapping[str, tuple[Callable[[Vector], tuple[Vector, Vector]], float]] = {
    "l2": (lambda x: (x**2 / 2, x), 1.0),
    "nonconvex": (lambda x: (x**2 / (1 + x**2), 2 * x / (1 + x**2) ** 2), 2.0),
}


class LocalRisks:
    """f_i, i = 1..n, of the samples `indices[i]`.

    Parameters
    ----------
    inputs, targets : (N, d) and (N,) of -1 and +1.
    indices : the rows of each worker.
    loss, regulariser : names in `LOSSES` and `REGULARISERS`.
    strength : weight of the regulariser.
    """

    def __init__(
        self,
        inputs: Vector,
        targets: Vector,
        indices: Sequence[NDArray[np.int64]],
        loss: str,
        regulariser: str,
        strength: float,
    ) -> None:
        from scipy.sparse import block_diag, csr_array

        self.n, self.d, self.strength = len(indices), inputs.shape[1], strength
        self._square, self.convex = loss == "square", regulariser == "l2" or strength == 0
        self._loss, self._curvature = LOSSES[loss]
        self._regulariser, self._bend = REGULARISERS[regulariser]
        self._inputs = [csr_array(inputs[rows]) for rows in indices]
        self._targets = [targets[rows] for rows in indices]
        self._together = csr_array(block_diag(self._inputs, format="csr"))
        self._transposed = csr_array(self._together.T)
        self._sizes = np.array([len(rows) for rows in indices])
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)[:-1]])
        self._all = np.concatenate(self._targets)
        self._shares = np.repeat(1.0 / self._sizes, self._sizes)

    def at(self, workers: Sequence[int], x: Vector) -> tuple[Vector, Vector]:
        """Values (w,) and gradients (w, d) of the workers, each at its own row of x (w, d)."""
        if list(workers) == list(range(self.n)):
            losses, slopes = self._loss(self._together @ x.ravel(), self._all)
            values = np.add.reduceat(losses * self._shares, self._starts)
            gradients = (self._transposed @ (slopes * self._shares)).reshape(self.n, self.d)
        else:
            pairs = [self._of_one(worker, row) for worker, row in zip(workers, x, strict=True)]
            values, gradients = np.array([value for value, _ in pairs]), np.stack([slope for _, slope in pairs])
        extra, bend = self._regulariser(x)
        return values + self.strength * extra.sum(1), gradients + self.strength * bend

    def _of_one(self, worker: int, x: Vector) -> tuple[float, Vector]:
        losses, slopes = self._loss(self._inputs[worker] @ x, self._targets[worker])
        return float(losses.mean()), self._inputs[worker].T @ slopes / len(losses)

    def mean(self, x: Vector) -> tuple[float, Vector]:
        """f(x) = (1/n) sum_i f_i(x) and its gradient."""
        values, gradients = self.at(range(self.n), np.tile(x, (self.n, 1)))
        return float(values.mean()), gradients.mean(0)

    @cached_property
    def grams(self) -> NDArray[np.float64]:
        """(n, d, d): A_i^T A_i / n_i."""
        return np.stack([(inputs.T @ inputs).toarray() / inputs.shape[0] for inputs in self._inputs])

    @cached_property
    def constants(self) -> dict[str, float]:
        """L, L_max, L_tilde, d, n; and of convex risks mu and kappa."""
        bend = self._bend * self.strength
        of_each = [self._curvature * float(np.linalg.eigvalsh(gram)[-1]) + bend for gram in self.grams]
        spectrum = np.linalg.eigvalsh(self.grams.mean(0))
        constants = {"L": self._curvature * float(spectrum[-1]) + bend, "L_max": max(of_each)}
        constants |= {"L_tilde": float(np.sqrt(np.mean(np.square(of_each)))), "d": float(self.d), "n": float(self.n)}
        if not self.convex:
            return constants
        mu = self.strength
        if self._square:  # of Polyak and Lojasiewicz where nothing regularises: the least that is not 0
            least = spectrum[0] if self.strength else spectrum[spectrum > SMALL * spectrum[-1]][0]
            mu += self._curvature * float(max(least, 0.0))
        return constants | ({"mu": mu, "kappa": constants["L"] / mu} if mu else {})

    @cached_property
    def least(self) -> float | None:
        """min f by Newton's method where f is convex, else None."""
        if not self.convex:
            return None
        x = np.zeros(self.d)
        value, gradient = self.mean(x)
        for _ in range(NEWTON):
            step = np.linalg.lstsq(self._hessian(x), gradient, rcond=SMALL)[0]
            length = 1.0
            while (trial := self.mean(x - length * step))[0] > value and length > 1e-10:
                length /= 2
            if trial[0] >= value:
                break
            x, (value, gradient) = x - length * step, trial
        return value

    def _hessian(self, x: Vector) -> NDArray[np.float64]:
        if self._square:
            return self._curvature * self.grams.mean(0) + self.strength * np.eye(self.d)
        total = self.strength * np.eye(self.d)
        for inputs, targets in zip(self._inputs, self._targets, strict=True):
            share = 1.0 / (1.0 + np.exp(-np.clip(targets * (inputs @ x), -700, 700)))
            weighted = inputs.multiply((share * (1 - share))[:, None] / inputs.shape[0])
            total += (inputs.T @ weighted).toarray() / self.n
        return total
