"""Bayesian optimisation: a Gaussian process over rows says what others may cost, expected improvement which to try."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commeff.planner.search.evolution import mutate
from commeff.planner.search.guided import Searcher
from commeff.planner.search.space import Rows, Values

FIRST = 24  # rows at random before there is anything to model
KEPT, LATEST = 160, 80  # rows that the model sees: the best, and the latest
CANDIDATES, NEAR = 400, 8  # rows drawn to choose from; children of each of so many of the best come on top
LENGTHS = (0.5, 1.0, 2.0, 4.0)  # of the kernel, tried at every fit
MOST = 0.75  # quantile of the values that the model tells apart
NOISE = 1e-3  # of the process, in units of the spread of values


class Bayes(Searcher):
    """exp(-distance / length) between rows, distance adding up, over the numbers, 1/2 for being different and 1/2
    scaled by how far apart; the length is the likeliest of a few.

    Values are centred and scaled, and the worst quarter counts as its best: what does not fit would blur the rest.
    Expected improvement (Mockus 1978) picks from random rows and from mutants of the best, several at a time.
    """

    batch = 8

    def ask(self, count: int) -> Rows:
        """The candidates by their expected improvement."""
        if len(self.rows) < FIRST:
            return self.draw(count)
        best = self.rows[np.argsort(self.values, kind="stable")[:NEAR]]
        mutants = mutate(np.repeat(best, 40, axis=0), self.problem.sizes, 1.5 / best.shape[1], self.random)
        mutants = self.problem.settle(mutants[self.problem.possible(mutants)])
        candidates = np.unique(np.vstack([self.draw(CANDIDATES), mutants]), axis=0)
        priced = {row.tobytes() for row in self.rows}
        new = candidates[[row.tobytes() not in priced for row in candidates]]
        return new[np.argsort(-self._improvement(new), kind="stable")[: 2 * count]]

    def tell(self, rows: Rows, values: Values) -> None:
        """Keep all rows and values, from which the next are guessed."""
        rows, values = np.vstack([self.rows, rows]), np.append(self.values, values)
        _, first = np.unique(rows, axis=0, return_index=True)
        first = np.sort(first)
        self.rows, self.values = rows[first], values[first]

    def _improvement(self, candidates: Rows) -> Values:
        """E max(0, best - value) for each."""
        from scipy.linalg import cho_factor, cho_solve
        from scipy.special import ndtr

        order = np.argsort(self.values, kind="stable")[:KEPT]
        seen = np.union1d(order, np.arange(len(self.rows))[-LATEST:])
        rows, values = self.rows[seen], np.minimum(self.values[seen], np.quantile(self.values[seen], MOST))
        centre, spread = values.mean(), max(float(values.std()), 1e-6)
        y = (values - centre) / spread
        near, across = self._distance(rows, rows), self._distance(candidates, rows)
        fits = []
        for length in LENGTHS:
            kernel = np.exp(-near / length) + NOISE * np.eye(len(rows))
            factor = cho_factor(kernel, lower=True)
            weights = cho_solve(factor, y)
            likelihood = -0.5 * y @ weights - np.log(np.diag(factor[0])).sum()
            fits.append((float(likelihood), length, factor, weights))
        _, length, factor, weights = max(fits, key=lambda fit: fit[0])
        between = np.exp(-across / length)
        mean = between @ weights
        deviation = np.sqrt(np.maximum(1 - (between * cho_solve(factor, between.T).T).sum(axis=1), 1e-12))
        gain = y.min() - mean
        z = gain / deviation
        density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
        return np.asarray(gain * ndtr(z) + deviation * density)

    def _distance(self, a: Rows, b: Rows) -> NDArray[np.float64]:
        """The distances of all pairs."""
        scale = np.maximum(np.array(self.problem.sizes) - 1, 1)
        total = np.zeros((len(a), len(b)))
        for i in range(a.shape[1]):
            gap = np.abs(a[:, i, None] - b[None, :, i])
            total += 0.5 * (gap > 0) + 0.5 * gap / scale[i]
        return total
