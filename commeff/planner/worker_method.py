"""What the worker axis of a policy does: psgd, or a strategy of so many workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from commeff import require

if TYPE_CHECKING:  # strategies come with torch, which only policies of more than psgd need
    from commeff.core import Strategy

PLAIN = "psgd"
StrategyFactory = Callable[[int], "Strategy"]  # from the number of workers


@dataclass(frozen=True)
class WorkerMethod:
    """What the worker axis does. What a method sends is said by its strategy, which is played: see `worker_profile`.

    Parameters
    ----------
    method : "psgd", or a function from the number of workers to a strategy. Equal functions are played once.
    collective : of a `Communicator`: how averages travel.
    steps : steps to the same loss, in units of those of `psgd`, or a function from the number of workers to them: what
        a search weighs seconds with.
    most_workers : of the policies that a search looks at, where `steps` is known up to so many; None: any.

    Examples
    --------
    >>> import torch
    >>> from commeff import methods, topologies
    >>> def gossip(workers):
    ...     return methods.dsgd(partial(torch.optim.SGD, lr=0.1), topologies.ring(workers))
    >>> WorkerMethod(gossip).name, WorkerMethod().is_plain
    ('gossip', True)
    """

    method: str | StrategyFactory = PLAIN
    collective: str = "auto"
    steps: float | Callable[[int], float] = 1.0
    most_workers: int | None = None

    def __post_init__(self) -> None:
        if not self.is_plain and not callable(self.method):
            raise ValueError(
                f"method must be {PLAIN} or a function from workers to a strategy, got {self.method!r}; "
                "write lambda workers: strategy"
            )
        if not callable(self.steps) and not 0 < self.steps < float("inf"):
            raise ValueError(f"steps must be a number above 0, got {self.steps!r} for method={self.name}")
        if self.most_workers is not None:
            require.at_least(2, most_workers=self.most_workers)

    @property
    def name(self) -> str:
        """The name people use: psgd, or what the function prints as."""
        return self.method if isinstance(self.method, str) else getattr(self.method, "__name__", str(self.method))

    @property
    def is_plain(self) -> bool:
        """Whether it is `psgd`, in which one worker is as good as many."""
        return self.method == PLAIN

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a `Policy`: all but what a search needs."""
        return {"method": self.method, "collective": self.collective}

    def steps_of(self, workers: int) -> float:
        """Steps to the same loss with so many workers.

        >>> WorkerMethod(steps=lambda workers: 1 + workers / 10).steps_of(2)
        1.2
        """
        return self.steps(workers) if callable(self.steps) else self.steps

    def strategy(self, workers: int) -> Strategy:
        """The strategy of so many workers, not started. Raises ValueError if there is none."""
        if not isinstance(self.method, str):
            return self.method(workers)
        from torch.optim import SGD  # remembers nothing: the planner counts Adam's states for every policy alike

        from commeff.methods import psgd

        return psgd(partial(SGD, lr=0.1))
