"""Who takes part in which step: drawn, read from a trace, or lost on the way; the same on every process."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from commeff import require
from commeff.compressors import WorkerRandom


@dataclass(frozen=True)
class Participation:
    """A pure function of the step: which of n workers are there.

    Parameters
    ----------
    n : int
        The number of workers.
    seed : int
        The key of what is drawn.
    share : float
        Of the workers, max(1, round(share n)) take part in each round, drawn without replacement.
    period : int
        The steps of a round.
    dropout : float
        The probability with which a worker fails during a step: nobody hears of what it computed, and it stays where it
        was.
    trace : sequence of (worker, start, stop), optional
        When workers are available: in the steps start <= k < stop. A worker that is not named is always.

    Examples
    --------
    >>> half = Participation(4, seed=1, share=0.5, period=2)
    >>> [half.present(step).tolist() for step in (0, 1, 2)]
    [[False, True, True, False], [False, True, True, False], [True, True, False, False]]
    >>> Participation(2, trace=((0, 1, 3),)).present(0).tolist()
    [False, True]
    """

    n: int
    seed: int = 0
    share: float = 1.0
    period: int = 1
    dropout: float = 0.0
    trace: tuple[tuple[int, int, int], ...] = ()

    def __post_init__(self) -> None:
        require.within("(0, 1]", participation=self.share)
        require.within("[0, 1)", dropout=self.dropout)
        for worker, start, stop in self.trace:
            if not 0 <= worker < self.n or not 0 <= start < stop:
                raise ValueError(
                    f"availability must name workers from 0 to {self.n - 1} and steps 0 <= start < stop, got worker "
                    f"{worker} from {start} to {stop}: correct that line of the trace"
                )

    @property
    def everybody(self) -> bool:
        """Whether all take part in every step."""
        return self.share == 1 and not self.dropout and not self.trace

    def present(self, step: int) -> Tensor:
        """(n,) bool: who takes part in a step."""
        present = torch.ones(self.n, dtype=torch.bool)
        if self.share < 1:
            count = max(1, round(self.share * self.n))
            present = self._draws(step // self.period, "participation").argsort().argsort() < count
        if self.dropout:
            present &= self._draws(step, "dropout") >= self.dropout
        available = {worker for worker, start, stop in self.trace if start <= step < stop}
        present[[worker for worker, *_ in self.trace if worker not in available]] = False
        return present

    def _draws(self, clock: int, purpose: str) -> Tensor:
        """(n,): a uniform number for each worker."""
        return WorkerRandom(self.seed, range(self.n), clock, ("who", purpose)).uniform(1, dtype=torch.float64)[:, 0]
