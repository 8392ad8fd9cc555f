"""The lecture's learned search: a policy over policies, trained by REINFORCE (Williams 1992)."""

from __future__ import annotations

import numpy as np

from commeff.planner.search.guided import Problem, Searcher
from commeff.planner.search.space import Rows, Values

RATE = 0.3  # of learning
MEMORY = 128  # latest rewards that make up the baseline
STALE = 20  # steps without a better row after which everything is forgotten
FLOOR = 0.05  # share of numbers drawn evenly, so that nothing is ever ruled out


class Reinforce(Searcher):
    """One softmax for every number of a row, all independent.

        logits  <-  logits + rate * sum over rows of  (reward - baseline) * (one_hot - probabilities)

    The reward of a row is its rank: the share of the latest rows that it beats, so that rows far too slow or too full
    do not drown what tells good ones apart; the baseline, the mean rank, is 1/2. With independent numbers it cannot
    learn that two of them fit only together, so it settles somewhere good but not best; then it starts anew.
    """

    batch = 16

    def __init__(self, problem: Problem, random: np.random.Generator) -> None:
        super().__init__(problem, random)
        self._forget()

    def _forget(self) -> None:
        self.logits = [np.zeros(size) for size in self.problem.sizes]
        self.latest: Values = np.empty(0)
        self.best, self.stale = np.inf, 0

    def ask(self, count: int) -> Rows:
        """Drawn from the softmaxes, thirty for one that is wanted, as many are not possible."""
        columns = [self.random.choice(len(p), size=30 * count, p=p) for p in map(softmax, self.logits)]
        return np.stack(columns, axis=1)

    def tell(self, rows: Rows, values: Values) -> None:
        """Take one step of gradient ascent on the logits."""
        self.latest = np.append(self.latest, values)[-MEMORY:]
        beaten = (values[:, None] < self.latest).mean(axis=1) + (values[:, None] == self.latest).mean(axis=1) / 2
        for column, logits in zip(rows.T, self.logits, strict=True):
            one_hot = np.eye(len(logits))[column]
            logits += RATE * ((beaten - 0.5)[:, None] * (one_hot - softmax(logits))).sum(axis=0)
        self.stale = 0 if values.min() < self.best else self.stale + 1
        self.best = min(self.best, float(values.min()))
        if self.stale > STALE:
            self._forget()


def softmax(logits: Values) -> Values:
    """Probabilities, none of them below a floor.

    >>> softmax(np.zeros(2))
    array([0.5, 0.5])
    """
    weights = np.exp(logits - logits.max())
    return (1 - FLOOR) * weights / weights.sum() + FLOOR / len(weights)
