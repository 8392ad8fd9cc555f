"""Where each worker is in a run: it computes, and its messages follow each other on its link."""

from __future__ import annotations

import numpy as np

from commeff.cluster.stragglers import Times, waited
from commeff.profiling import Operation


class Progress:
    """The clocks of n workers. In each step: `compute`, then `send` what is sent, then `end`.

    Parameters
    ----------
    workers : n, or 1 for workers that are all alike and never wait for each other.

    >>> import numpy as np
    >>> from commeff.profiling import Operation
    >>> delayed, progress = Operation(0, "", "all_reduce", 1, 1, 1, 1, waited=1), Progress(1)
    >>> progress.compute(np.array([2.0]))
    >>> progress.send(delayed, seconds=3.0, share=0.0)             # from 2 to 5
    >>> progress.end(0).tolist()
    [2.0]
    >>> progress.compute(np.array([2.0]))
    >>> progress.end(1).tolist()
    [5.0]
    """

    def __init__(self, workers: int) -> None:
        self._now, self._link = np.zeros(workers), np.zeros(workers)
        self._arrivals: dict[int, Times] = {}

    def compute(self, seconds: Times) -> None:
        """Begin a step: (n,) seconds of computing."""
        self._computing, self._computed = seconds, self._now + seconds

    def send(self, operation: Operation, seconds: float, share: float) -> None:
        """Send when only `share` of the step's computing is left, when the link is free and all partners are there."""
        posted = np.maximum(self._computed - share * self._computing, self._link)
        partners = operation.matrix if operation.matrix is not None else True
        self._link = (waited(posted, partners) if posted.size > 1 else posted) + seconds
        due = max(operation.waited, operation.step)
        self._arrivals[due] = np.maximum(self._link, self._arrivals.get(due, 0.0))

    def end(self, step: int) -> Times:
        """End the step, when everything has arrived that is waited for in it: (n,) seconds since the start."""
        self._now = np.maximum(self._computed, self._arrivals.pop(step, 0.0))
        return self._now
