"""How every guided search is driven, so that all spend the same: who asks, what an evaluation is, when it ends.

A search sees rows of whole numbers, which of them are possible, and a number for each that is to be made small. It
learns nothing else of models and clusters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from commeff.planner.constants import MEASURED, Constants
from commeff.planner.estimate import estimate
from commeff.planner.policies import Mask
from commeff.planner.search.space import Rows, Space, Values

TOO_FULL = 2.0  # added to the logarithm of seconds where memory does not suffice: e^2 times as bad as it is slow
PATIENCE = 40  # rounds in which a searcher may ask for nothing new before it is given rows at random
DRAWS = 4096  # rows drawn at once to find possible ones


class Problem(ABC):
    """Rows of `len(sizes)` whole numbers, the i-th below sizes[i]."""

    sizes: tuple[int, ...]

    @abstractmethod
    def possible(self, rows: Rows) -> Mask:
        """Mask of the rows that mean anything. It is asked for free: it prices nothing."""

    @abstractmethod
    def price(self, rows: Rows) -> Values:
        """The logarithm of what is to be made small, of possible rows."""

    def settle(self, rows: Rows) -> Rows:
        """The same rows with every number that has no effect set to 0."""
        return rows


class EvenPolicies(Problem):
    """The policies of a space, their stages equal: logarithms of seconds, times the steps that their ways need."""

    def __init__(self, space: Space, constants: Constants = MEASURED) -> None:
        self.space, self.constants, self.sizes = space, constants, space.sizes

    def possible(self, rows: Rows) -> Mask:
        """See `Space.possible`."""
        return self.space.possible(rows)

    def price(self, rows: Rows) -> Values:
        """Price all rows by one call of `estimate`."""
        space = self.space
        prices = estimate(space.model, space.policies(rows), space.cluster, space.global_batch, self.constants)
        limit = space.cluster.gpu.memory_bytes
        return penalised(prices.step_seconds * space.steps(rows), prices.memory_bytes / limit)


def penalised(seconds: Values, filled: Values) -> Values:
    """log(seconds), and where more than the memory is filled, by how much it is, on top of what nothing that fits
    reaches by much: a search learns from what does not fit too.

    Parameters
    ----------
    seconds : of a step.
    filled : share of the memory that is filled.

    Examples
    --------
    >>> penalised(np.array([1.0, 1.0]), np.array([0.9, 2.0])).round(2)
    array([0.  , 2.69])
    """
    return np.log(seconds) + np.where(filled > 1, TOO_FULL + np.log(np.maximum(filled, 1.0)), 0.0)


class Searcher(ABC):
    """Asks for rows and is told their values. It may ask for anything: rows that are not possible are dropped, and
    those that were priced before are told again.
    """

    batch: int = 16  # new rows that it wants priced at a time

    def __init__(self, problem: Problem, random: np.random.Generator) -> None:
        self.problem, self.random, self.draw = problem, random, Draw(problem, random)
        self.rows = np.empty((0, len(problem.sizes)), dtype=np.int64)
        self.values: Values = np.empty(0)

    @abstractmethod
    def ask(self, count: int) -> Rows:
        """Rows that it would like to know about, best guess first."""

    @abstractmethod
    def tell(self, rows: Rows, values: Values) -> None:
        """Learn what possible rows among them cost, small being good."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Rows that were priced, in order, and their values; as many as the budget, or all that there are.

    Attributes
    ----------
    rows : what was priced, in order.
    values : of each row, small being good.
    """

    rows: Rows
    values: Values

    @property
    def best(self) -> Values:
        """The least value so far, after each evaluation."""
        return np.minimum.accumulate(self.values)


class Draw:
    """Possible rows at random, each as likely as any other."""

    def __init__(self, problem: Problem, random: np.random.Generator) -> None:
        self.problem, self.random = problem, random
        self._left = np.empty((0, len(problem.sizes)), dtype=np.int64)

    def __call__(self, count: int) -> Rows:
        """So many, or fewer if hardly any row is possible."""
        for _ in range(PATIENCE):
            if len(self._left) >= count:
                break
            rows = self.random.integers(0, self.problem.sizes, size=(DRAWS, len(self.problem.sizes)))
            possible = rows[self.problem.possible(rows)]
            self._left = np.vstack([self._left, self.problem.settle(possible)])
        drawn, self._left = self._left[:count], self._left[count:]
        return drawn


class RandomSearch(Searcher):
    """Rows at random: the floor that every other search has to beat."""

    def ask(self, count: int) -> Rows:
        """Rows drawn at random."""
        return self.draw(count)

    def tell(self, rows: Rows, values: Values) -> None:
        """Learn nothing: the next rows are random again."""


def drive(searcher: Searcher, problem: Problem, budget: int, random: np.random.Generator) -> Trace:
    """Let a searcher spend its budget.

    An evaluation is one possible row priced for the first time. Whether a row is possible is asked for free, and no row
    is paid for twice. A searcher that keeps asking for what is known gets new rows at random instead; if there are none
    left either, it ends early.

    Parameters
    ----------
    searcher : proposes rows and learns their values.
    problem : says which rows are possible and prices them.
    budget : evaluations that it may spend.
    random : generator of all random numbers.
    """
    prices: dict[bytes, float] = {}
    priced: list[Rows] = []
    draw, idle = Draw(problem, random), 0
    while len(prices) < budget:
        count = min(searcher.batch, budget - len(prices))
        proposals = searcher.ask(count) if idle < PATIENCE else draw(count)
        proposals = problem.settle(proposals[problem.possible(proposals)])
        new = {row.tobytes(): row for row in proposals if row.tobytes() not in prices}
        fresh = list(new.values())[:count]
        if fresh:
            rows = np.array(fresh)
            values = problem.price(rows)
            prices |= {row.tobytes(): float(value) for row, value in zip(rows, values, strict=True)}
            priced.append(rows)
        elif idle > 2 * PATIENCE:
            break
        idle = 0 if fresh else idle + 1
        answers = [row for row in proposals if row.tobytes() in prices]
        if answers:
            searcher.tell(np.array(answers), np.array([prices[row.tobytes()] for row in answers]))
    rows = np.vstack([np.empty((0, len(problem.sizes)), dtype=np.int64), *priced])
    return Trace(rows, np.array([prices[row.tobytes()] for row in rows]))
