"""Evolution: parents chosen in small tournaments, their numbers mixed, a few of them changed."""

from __future__ import annotations

import numpy as np

from commeff.planner.search.guided import Searcher
from commeff.planner.search.space import Rows, Values

PARENTS, TOURNAMENT = 24, 3  # that live on; of which the best becomes a parent
CHANGES = 1.5  # numbers of a child that change, on average
NEAR = 0.5  # share of changes that move to the next value instead of any


class Evolution(Searcher):
    """A (mu + lambda) strategy: the best `PARENTS` of all rows so far live on.

    The first rows are drawn at random. Every child takes each number from one of two parents; then each changes with
    probability `CHANGES` / numbers.
    """

    def ask(self, count: int) -> Rows:
        """Children, ten for one that is wanted, as many are not possible."""
        if len(self.rows) < PARENTS:
            return self.draw(count)
        shape = (10 * count, len(self.problem.sizes))
        mothers, fathers = self._parents(len(self.rows), shape[0]), self._parents(len(self.rows), shape[0])
        children = np.where(self.random.random(shape) < 0.5, self.rows[mothers], self.rows[fathers])
        return mutate(children, self.problem.sizes, CHANGES / shape[1], self.random)

    def _parents(self, living: int, count: int) -> Rows:
        """Places of the winners; rows are kept best first."""
        return self.random.integers(0, living, size=(count, TOURNAMENT)).min(axis=1)

    def tell(self, rows: Rows, values: Values) -> None:
        """Keep the best rows as parents of the next."""
        rows, values = np.vstack([self.rows, rows]), np.append(self.values, values)
        rows, first = np.unique(rows, axis=0, return_index=True)
        order = np.argsort(values[first], kind="stable")[:PARENTS]
        self.rows, self.values = rows[order], values[first][order]


def mutate(rows: Rows, sizes: tuple[int, ...], share: float, random: np.random.Generator) -> Rows:
    """Change a share of the numbers: half of them by one up or down, the others to anything.

    >>> mutate(np.zeros((1, 3), dtype=int), (4, 4, 1), 0.0, np.random.default_rng(0))
    array([[0, 0, 0]])
    """
    top = np.array(sizes) - 1
    near = np.clip(rows + random.choice([-1, 1], size=rows.shape), 0, top)
    anything = random.integers(0, top + 1, size=rows.shape)
    changed = np.where(random.random(rows.shape) < NEAR, near, anything)
    return np.where(random.random(rows.shape) < share, changed, rows)
