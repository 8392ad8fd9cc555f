"""What a guided search sees: rows of whole numbers, which of them are possible, and a number for each that is to be
made small. It learns nothing else of models and clusters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from commeff.planner.constants import MEASURED, Constants
from commeff.planner.estimate import estimate
from commeff.planner.policies import Mask
from commeff.planner.policy import Policy
from commeff.planner.search.space import Rows, Space

Values = NDArray[np.float64]
TOO_FULL = 2.0  # added to the logarithm of seconds where memory does not suffice: e^2 times as bad as it is slow


class Problem(ABC):
    """Rows of `len(sizes)` whole numbers, the i-th below sizes[i]."""

    sizes: tuple[int, ...]

    @abstractmethod
    def possible(self, rows: Rows) -> Mask:
        """Which rows mean anything. It is asked for free: it prices nothing."""

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

    def policy(self, row: Rows) -> Policy:
        """The policy that a row stands for."""
        return self.space.policy(row)


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
